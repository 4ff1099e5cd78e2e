variable "project" {
  description = "Id of the project, neither its name nor its number."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "A project id has 6 to 30 lower-case letters, digits and hyphens."
  }
}

variable "region" {
  description = "Region of the bucket and the images. Machines of other regions pay for each restore and each pull."
  type        = string
  default     = "us-east1"
}

variable "zones" {
  description = "Zones for machines, in the order of requests. Empty: the first three of the region."
  type        = list(string)
  default     = []
}

variable "shapes" {
  description = "Machines that a run may get, by name, in order of preference."
  type        = list(string)
  default     = ["t4=n1-standard-8+1xnvidia-tesla-t4"]
}

variable "bucket" {
  description = "Name of the new bucket for all runs. Names are unique world-wide."
  type        = string
}

variable "features" {
  description = "Rights of the supervisor beyond starting, watching and ending machines; see README.md."
  type        = set(string)
  default     = ["external_ip", "capacity_advice", "price_history"]

  validation {
    condition = alltrue([
      for feature in var.features : contains([
        "external_ip", "capacity_advice", "price_history", "subnet", "data_disk", "boot_image", "base_images", "cloud_logging",
        "keep", "preempt",
      ], feature)
    ])
    error_message = "There is no such feature. README.md lists them."
  }
}

variable "secrets" {
  description = "Names of secrets of this project that runs may read, such as hf-token. They must exist."
  type        = set(string)
  default     = []
}

variable "supervisor_users" {
  description = "People who run the supervisor with their own credentials, such as user:me@example.com."
  type        = set(string)
  default     = []
}

variable "builders" {
  description = "People who build images with `spot build-image`, such as user:me@example.com."
  type        = set(string)
  default     = []
}

variable "staging_prefix" {
  description = "Folder of the bucket for sources of image builds; its files are deleted after a week."
  type        = string
  default     = "build-staging"
}

variable "network" {
  description = "Network of the machines. They accept no connections, so no firewall rule is needed or created."
  type        = string
  default     = "default"
}

variable "subnet" {
  description = "Subnet of the machines; empty where the network has automatic ones. Needs the feature subnet."
  type        = string
  default     = ""
}

variable "supervisor_vm" {
  description = "A small machine that runs the supervisor; null: it runs elsewhere. wheel: gs:// URL of the built package."
  type = object({
    zone         = string
    wheel        = string
    machine_type = optional(string, "e2-small")
  })
  default = null
}

variable "role_prefix" {
  description = "Custom roles are named PREFIXSupervisor and so on. A deleted role blocks its name for weeks."
  type        = string
  default     = "spot"
}
