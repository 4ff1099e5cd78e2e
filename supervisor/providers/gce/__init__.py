"""Google Compute Engine: spot VMs with GPUs. `google.*` is imported only here, and only when it is needed."""
