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

  # Each call names its project: a person's credentials need that for Cloud Billing and Resource Manager.
  billing_project       = var.project
  user_project_override = true
}
