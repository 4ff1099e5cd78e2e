#!/bin/bash
# Runs at each boot of the supervisor's machine, as root: installs the package named in the metadata, writes the settings
# from the metadata, and starts the service. A repeat changes nothing.
set -euo pipefail

metadata() {
  curl -sSf -H 'Metadata-Flavor: Google' "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip' 2>/dev/null; then
  apt-get update
  apt-get install --yes python3-venv
fi

id spot >/dev/null 2>&1 || useradd --system --home-dir /var/lib/spot --create-home spot
test -x /opt/spot/bin/pip || python3 -m venv /opt/spot

wheel=$(metadata spot-wheel)
file=/opt/spot/${wheel##*/}
if ! test -e "$file"; then
  gcloud storage cp "$wheel" "$file"
  /opt/spot/bin/pip install --upgrade "${file}[google]"
fi

metadata spot-settings >/etc/spot.env
printf '\nSPOT_DATA_DIR=/var/lib/spot/data\n' >>/etc/spot.env

cat >/etc/systemd/system/spot.service <<'UNIT'
[Unit]
Description=Spot Supervisor
Wants=network-online.target
After=network-online.target

[Service]
User=spot
EnvironmentFile=/etc/spot.env
ExecStartPre=/opt/spot/bin/spot migrate
ExecStart=/opt/spot/bin/spot serve
Restart=always
RestartSec=5
NoNewPrivileges=true
ProtectSystem=strict
StateDirectory=spot
PrivateTmp=true

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable spot.service
systemctl restart spot.service
