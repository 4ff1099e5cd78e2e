# Optional: a small machine that runs the supervisor with an account of its own. It listens on loopback; the output
# `tunnel` is the command to reach it. Its data folder is on its boot disk: a replacement of the machine loses it, unless
# you keep the disk by hand.

resource "google_compute_instance" "supervisor" {
  count = var.supervisor_vm == null ? 0 : 1

  name                      = "${var.role_prefix}-supervisor"
  zone                      = var.supervisor_vm.zone
  machine_type              = var.supervisor_vm.machine_type
  allow_stopping_for_update = true

  boot_disk {
    initialize_params {
      image = "projects/debian-cloud/global/images/family/debian-12"
      size  = 20 # GB
      type  = "pd-balanced"
    }
  }

  network_interface {
    network    = var.subnet == "" ? var.network : null
    subnetwork = var.subnet == "" ? null : var.subnet

    dynamic "access_config" {
      for_each = contains(var.features, "external_ip") ? [1] : []
      content {}
    }
  }

  service_account {
    email  = google_service_account.supervisor.email
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot = true
  }

  metadata = {
    enable-oslogin = "TRUE"
    spot-settings  = join("\n", [for name, value in local.settings : "${name}=${value}" if value != ""])
    spot-wheel     = var.supervisor_vm.wheel
    startup-script = file("${path.module}/supervisor_vm.sh")
  }

  lifecycle {
    # A newer Debian image must not replace the machine: its data folder would be lost.
    ignore_changes = [boot_disk[0].initialize_params[0].image]
  }
}
