project = "my-project"
bucket  = "my-spot-bucket"
region  = "us-east1"
zones   = ["us-east1-c", "us-east1-b", "us-east1-d"]
shapes  = ["t4=n1-standard-8+1xnvidia-tesla-t4"]
secrets = ["hf-token"]

# People, while the supervisor runs on their own computer and images are built from there.
supervisor_users = ["user:me@example.com"]
builders         = ["user:me@example.com"]
