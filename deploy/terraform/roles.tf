# The rights of each account, permission by permission. The tests of this repository refuse every call without a
# permission here, and fail if no call needs a permission.

locals {
  # By purpose. runs and looks are always granted, the others where var.features names them.
  supervisor_permissions = {
    runs = [
      "compute.disks.create",
      "compute.instances.create",
      "compute.instances.delete",
      "compute.instances.get",
      "compute.instances.getSerialPortOutput",
      "compute.instances.list",
      "compute.instances.setLabels",
      "compute.instances.setMetadata",
      "compute.instances.setServiceAccount",
      "compute.subnetworks.use",
      "compute.zoneOperations.get",
      "compute.zoneOperations.list",
    ]
    looks = [
      "compute.acceleratorTypes.get",
      "compute.machineTypes.get",
      "compute.projects.get",
      "compute.regions.get",
      "compute.zones.get",
    ]
    external_ip = ["compute.subnetworks.useExternalIp"]
    subnet      = ["compute.subnetworks.get"]
    data_disk   = ["compute.disks.get", "compute.disks.use", "compute.disks.useReadOnly"]
    boot_image = [
      "compute.images.get",
      "compute.images.getFromFamily",
      "compute.images.useReadOnly",
    ]
    base_images = [
      "compute.disks.useReadOnly",
      "compute.images.create",
      "compute.images.delete",
      "compute.images.get",
      "compute.images.setLabels",
      "compute.images.useReadOnly",
    ]
    cloud_logging = ["logging.logEntries.list"]
    keep          = ["compute.instances.start", "compute.instances.stop"]
    preempt       = ["compute.instances.simulateMaintenanceEvent"]
  }
  supervisor_groups = setunion(["runs", "looks"], var.features)

  # New permissions, in a role of their own: if Google does not accept them in a custom role yet, only this role fails.
  advice_permissions = {
    capacity_advice = ["compute.advice.capacity"]
    price_history   = ["compute.advice.capacityHistory"]
  }
  advice_groups = setintersection(keys(local.advice_permissions), var.features)

  # For a person whose own credentials the supervisor uses: Google counts such calls to a project that the person names.
  person_permissions = ["serviceusage.services.use"]

  # On the bucket. Replacing an object needs the right to delete.
  object_permissions = [
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
  ]
  bucket_permissions = ["storage.buckets.get"]

  registry_permissions = ["artifactregistry.repositories.downloadArtifacts"]

  # For a person who builds: to upload and delete staged sources.
  staging_permissions = [
    "storage.objects.create",
    "storage.objects.delete",
  ]

  # And on the project: to start a build, follow it, find it after a lost response, and cancel it when its time is
  # over; gcloud counts its calls to the project.
  builder_permissions = [
    "cloudbuild.builds.create",
    "cloudbuild.builds.get",
    "cloudbuild.builds.list",
    "cloudbuild.builds.update",
    "serviceusage.services.use",
  ]
}

resource "google_project_iam_custom_role" "supervisor" {
  role_id     = "${var.role_prefix}Supervisor"
  title       = "Spot Supervisor"
  description = "Starts, watches and ends machines"
  permissions = flatten([for group, names in local.supervisor_permissions : names if contains(local.supervisor_groups, group)])
}

resource "google_project_iam_custom_role" "advice" {
  count = length(local.advice_groups) > 0 ? 1 : 0

  role_id     = "${var.role_prefix}Advice"
  title       = "Spot advice"
  description = "Reads how likely machines are available, and their recent prices"
  permissions = flatten([for group, names in local.advice_permissions : names if contains(local.advice_groups, group)])
}

resource "google_project_iam_custom_role" "person" {
  role_id     = "${var.role_prefix}Person"
  title       = "Spot person"
  description = "Lets calls with a person's credentials count to the project"
  permissions = local.person_permissions
}

resource "google_project_iam_custom_role" "objects" {
  role_id     = "${var.role_prefix}Objects"
  title       = "Spot objects"
  description = "Reads, writes and deletes objects of the bucket"
  permissions = local.object_permissions
}

resource "google_project_iam_custom_role" "bucket" {
  role_id     = "${var.role_prefix}Bucket"
  title       = "Spot bucket"
  description = "Reads the bucket's own settings"
  permissions = local.bucket_permissions
}

resource "google_project_iam_custom_role" "registry" {
  role_id     = "${var.role_prefix}Images"
  title       = "Spot images"
  description = "Pulls images, and resolves tags"
  permissions = local.registry_permissions
}

resource "google_project_iam_custom_role" "staging" {
  role_id     = "${var.role_prefix}Staging"
  title       = "Spot staged sources"
  description = "Uploads and deletes sources of image builds in the bucket"
  permissions = local.staging_permissions
}

resource "google_project_iam_custom_role" "builder" {
  role_id     = "${var.role_prefix}Builder"
  title       = "Spot image builder"
  description = "Starts image builds in Cloud Build"
  permissions = local.builder_permissions
}
