"""gcloud, as far as `builds submit` goes: it sends the folder by its ignore file, starts the build it was given, and
waits. What it says and how it ends is told by the scene: {"before": text, "submit": bool, "wait": bool, "after": text,
"code": n, "hang": bool}.
"""

import io
import json
import os
import sys
import tarfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import yaml
from pathspec import GitIgnoreSpec

SCENE = Path(os.environ["STUB_SCENE"])


def main() -> int:
    with (SCENE / "gcloud.calls").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    plan = json.loads((SCENE / "gcloud.json").read_text())
    if plan.get("before"):
        print(plan["before"], file=sys.stderr, flush=True)
    if plan.get("hang"):
        (SCENE / "gcloud.pid").write_text(str(os.getpid()))
        time.sleep(600)
    if plan.get("submit"):
        submit(bool(plan.get("wait", True)))
    if plan.get("after"):
        print(plan["after"], file=sys.stderr, flush=True)
    return plan.get("code", 0)


def submit(wait: bool) -> None:
    source = Path(sys.argv[3])
    options = dict(word[2:].split("=", 1) for word in sys.argv[4:] if "=" in word)
    ignored = GitIgnoreSpec.from_lines((source / options["ignore-file"]).read_text().splitlines())
    files = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    sent = [name for name in files if not ignored.match_file(name)]
    (SCENE / "gcloud.files").write_text(json.dumps(sent))
    bucket, _, prefix = options["gcs-source-staging-dir"].removeprefix("gs://").partition("/")
    name = f"{prefix}/by-gcloud.tgz"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sent:
            archive.add(source / path, path)
    query = urllib.parse.urlencode({"uploadType": "media", "name": name})
    storage = os.environ["STORAGE_EMULATOR_HOST"]
    ask("POST", f"{storage}/upload/storage/v1/b/{bucket}/o?{query}", buffer.getvalue())
    build = yaml.safe_load(Path(options["config"]).read_text())
    build["source"] = {"storageSource": {"bucket": bucket, "object": name}}
    builds = f"v1/projects/{options['project']}/locations/{options['region']}/builds"
    url = f"{os.environ['STUB_CLOUD_BUILD']}/{builds}"
    made = ask("POST", url, json.dumps(build).encode())["metadata"]["build"]["id"]
    print(f"Created [https://cloudbuild.googleapis.com/{builds}/{made}].", file=sys.stderr, flush=True)
    while wait:
        build = ask("GET", f"{url}/{made}")
        if build["status"] not in ("QUEUED", "WORKING"):
            print(";".join(image["digest"] for image in build["results"]["images"]))
            return


def ask(method: str, url: str, body: bytes | None = None) -> dict:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


sys.exit(main())
