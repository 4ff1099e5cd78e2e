terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.30, < 8.0" # 5.30: soft_delete_policy of buckets
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region

  # Each call names its project itself: credentials of a person need it for Cloud Billing and Resource Manager.
  billing_project       = var.project
  user_project_override = true
}
