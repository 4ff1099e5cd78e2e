# What each account may do, permission by permission. The tests of this repository refuse every call that is not covered
# here, and fail where something is granted that no call needs.

locals {
  # By what it is for. runs and looks are always granted, the others where var.features names them.
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
    cloud_logging = ["logging.logEntries.list"]
    preempt       = ["compute.instances.simulateMaintenanceEvent"]
  }
  supervisor_groups = setunion(["runs", "looks"], var.features)

  # New permissions, in a role of their own: where Google does not take them in a custom role yet, only this role fails.
  advice_permissions = {
    capacity_advice = ["compute.advice.capacity"]
    price_history   = ["compute.advice.capacityHistory"]
  }
  advice_groups = setintersection(keys(local.advice_permissions), var.features)

  # Of a person whose own credentials the supervisor uses: Google counts such calls to a project that the person names.
  person_permissions = ["serviceusage.services.use"]

  # On the bucket. To replace an object is to delete the old one.
  object_permissions = [
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
  ]
  bucket_permissions = ["storage.buckets.get"]

  registry_permissions = ["artifactregistry.repositories.downloadArtifacts"]

  # Of a person who builds, on staged sources: to put them there and take them away.
  staging_permissions = [
    "storage.objects.create",
    "storage.objects.delete",
  ]

  # And on the project: asks for the build, follows it, finds it again when an answer was lost, cancels it when its
  # time is over; gcloud counts its calls to the project.
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
  description = "Asks how likely machines are to be had, and what they cost lately"
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
  description = "Pulls images, and asks which content a tag names"
  permissions = local.registry_permissions
}

resource "google_project_iam_custom_role" "staging" {
  role_id     = "${var.role_prefix}Staging"
  title       = "Spot staged sources"
  description = "Puts sources of image builds into the bucket, and takes them away"
  permissions = local.staging_permissions
}

resource "google_project_iam_custom_role" "builder" {
  role_id     = "${var.role_prefix}Builder"
  title       = "Spot image builder"
  description = "Asks Cloud Build for an image"
  permissions = local.builder_permissions
}
