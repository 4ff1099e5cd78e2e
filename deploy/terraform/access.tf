# Which account gets which role, and on what: the project only where nothing smaller is possible.

locals {
  # The keys are known before anything is created, so that the first apply can plan them.
  supervisors = merge(
    { account = google_service_account.supervisor.member },
    { for person in var.supervisor_users : person => person },
  )

  staging_objects = "projects/_/buckets/${google_storage_bucket.runs.name}/objects/${var.staging_prefix}/"
}

# --- the supervisor ---------------------------------------------------------------------------------------------------

resource "google_project_iam_member" "supervisor" {
  for_each = local.supervisors

  project = var.project
  role    = google_project_iam_custom_role.supervisor.id
  member  = each.value
}

resource "google_project_iam_member" "supervisor_advice" {
  for_each = { for key, member in local.supervisors : key => member if length(local.advice_groups) > 0 }

  project = var.project
  role    = google_project_iam_custom_role.advice[0].id
  member  = each.value
}

resource "google_project_iam_member" "person" {
  for_each = var.supervisor_users

  project = var.project
  role    = google_project_iam_custom_role.person.id
  member  = each.value
}

resource "google_service_account_iam_member" "supervisor_acts_as_worker" {
  for_each = local.supervisors

  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value
}

resource "google_storage_bucket_iam_member" "supervisor_objects" {
  for_each = local.supervisors

  bucket = google_storage_bucket.runs.name
  role   = google_project_iam_custom_role.objects.id
  member = each.value
}

resource "google_storage_bucket_iam_member" "supervisor_bucket" {
  for_each = local.supervisors

  bucket = google_storage_bucket.runs.name
  role   = google_project_iam_custom_role.bucket.id
  member = each.value
}

resource "google_artifact_registry_repository_iam_member" "supervisor_images" {
  for_each = local.supervisors

  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = google_project_iam_custom_role.registry.id
  member     = each.value
}

# --- the machines -----------------------------------------------------------------------------------------------------

resource "google_storage_bucket_iam_member" "worker_objects" {
  bucket = google_storage_bucket.runs.name
  role   = google_project_iam_custom_role.objects.id
  member = google_service_account.worker.member
}

resource "google_artifact_registry_repository_iam_member" "worker_images" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = google_project_iam_custom_role.registry.id
  member     = google_service_account.worker.member
}

resource "google_secret_manager_secret_iam_member" "worker_secrets" {
  for_each = var.secrets

  secret_id = each.value
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.worker.member
}

# --- image builds -----------------------------------------------------------------------------------------------------

resource "google_storage_bucket_iam_member" "build_source" {
  bucket = google_storage_bucket.runs.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.build.member

  condition {
    title      = "staged sources only"
    expression = "resource.name.startsWith(\"${local.staging_objects}\")"
  }
}

resource "google_project_iam_member" "build_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.build.member
}

resource "google_artifact_registry_repository_iam_member" "build_pushes" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.build.member
}

resource "google_project_iam_member" "builder" {
  for_each = var.builders

  project = var.project
  role    = google_project_iam_custom_role.builder.id
  member  = each.value
}

resource "google_service_account_iam_member" "builder_acts_as_build" {
  for_each = var.builders

  service_account_id = google_service_account.build.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value
}

resource "google_storage_bucket_iam_member" "builder_stages" {
  for_each = var.builders

  bucket = google_storage_bucket.runs.name
  role   = google_project_iam_custom_role.staging.id
  member = each.value

  condition {
    title      = "staged sources only"
    expression = "resource.name.startsWith(\"${local.staging_objects}\")"
  }
}

resource "google_storage_bucket_iam_member" "builder_bucket" {
  for_each = var.builders

  bucket = google_storage_bucket.runs.name
  role   = google_project_iam_custom_role.bucket.id
  member = each.value
}

# The third way builds and pushes on the person's own computer; every way reads the digest afterwards.
resource "google_artifact_registry_repository_iam_member" "builder_pushes" {
  for_each = var.builders

  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = each.value
}
