# One project, one bucket, three accounts. roles.tf has the rights, access.tf assigns them.

locals {
  services = [
    "artifactregistry.googleapis.com",
    "cloudbilling.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "secretmanager.googleapis.com",
    "storage.googleapis.com",
  ]
}

resource "google_project_service" "all" {
  for_each = toset(local.services)

  service            = each.value
  disable_on_destroy = false # others in the project may use it
}

data "google_compute_zones" "of_region" {
  region     = var.region
  depends_on = [google_project_service.all]
}

resource "google_storage_bucket" "runs" {
  name     = var.bucket
  location = var.region

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # Beats and checkpoints are replaced all the time: soft delete would keep, and bill, each old one for a week.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  versioning {
    enabled = false
  }

  lifecycle_rule {
    condition {
      age            = 7 # days
      matches_prefix = ["${var.staging_prefix}/"]
    }
    action {
      type = "Delete"
    }
  }

  # Parts of uploads that a preemption interrupted. This deletes no object.
  lifecycle_rule {
    condition {
      age = 7 # days
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  depends_on = [google_project_service.all]
}

resource "google_artifact_registry_repository" "images" {
  repository_id = "${var.role_prefix}-images"
  description   = "Images of trainings"
  location      = var.region
  format        = "DOCKER"

  depends_on = [google_project_service.all]
}

resource "google_service_account" "supervisor" {
  account_id   = "${var.role_prefix}-supervisor"
  display_name = "Starts, watches and ends the machines of trainings"

  depends_on = [google_project_service.all]
}

resource "google_service_account" "worker" {
  account_id   = "${var.role_prefix}-worker"
  display_name = "Machines of trainings: the bucket, named secrets, images, and nothing else"

  depends_on = [google_project_service.all]
}

resource "google_service_account" "build" {
  account_id   = "${var.role_prefix}-build"
  display_name = "Builds images of trainings"

  depends_on = [google_project_service.all]
}
