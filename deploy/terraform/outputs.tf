locals {
  zones = length(var.zones) > 0 ? var.zones : slice(
    data.google_compute_zones.of_region.names, 0, min(3, length(data.google_compute_zones.of_region.names))
  )

  images = join("/", [
    "${google_artifact_registry_repository.images.location}-docker.pkg.dev",
    var.project,
    google_artifact_registry_repository.images.name,
  ])

  settings = {
    SPOT_PROVIDER            = "gce"
    SPOT_STORE_URL           = "gs://${google_storage_bucket.runs.name}"
    SPOT_GCE_PROJECT         = var.project
    SPOT_GCE_ZONES           = join(",", local.zones)
    SPOT_GCE_SHAPES          = join(",", var.shapes)
    SPOT_GCE_SERVICE_ACCOUNT = google_service_account.worker.email
    SPOT_DEFAULT_IMAGE       = "${local.images}/train:latest"
    SPOT_GCE_NETWORK         = var.network
    SPOT_GCE_SUBNET          = var.subnet
    SPOT_GCE_EXTERNAL_IP     = tostring(contains(var.features, "external_ip"))
    SPOT_GCE_CAPACITY_ADVICE = tostring(contains(var.features, "capacity_advice"))
  }
}

output "settings" {
  description = "An environment file: terraform output -raw settings > spot.env"
  value       = join("\n", concat([for name, value in local.settings : "${name}=${value}" if value != ""], [""]))
}

output "images" {
  description = "Prefix of image names."
  value       = local.images
}

output "supervisor" {
  description = "The supervisor's account on a machine of Google Cloud."
  value       = google_service_account.supervisor.email
}

output "build" {
  description = "The account of Cloud Build: spot build-image --service-account."
  value       = google_service_account.build.email
}

output "tunnel" {
  description = "Command that forwards the port of the supervisor's machine, where it listens on loopback."
  value = var.supervisor_vm == null ? "" : join(" ", [
    "gcloud compute ssh ${google_compute_instance.supervisor[0].name} --project=${var.project}",
    "--zone=${google_compute_instance.supervisor[0].zone} --tunnel-through-iap -- -N -L 8787:127.0.0.1:8787",
  ])
}
