{{/* Labels of every object; the first two never change, so they select the pods. */}}
{{- define "spot.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spot.labels" -}}
{{ include "spot.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Values that contradict each other, or would be lost without a word. */}}
{{- define "spot.check" -}}
{{- if and .Values.sqlite.enabled (gt (int .Values.replicas) 1) }}
{{- fail "sqlite.enabled: a SQLite database has one supervisor, so set replicas to 1. Several need PostgreSQL." }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}
{{- fail "ingress.enabled: set ingress.host, the name under which people reach the supervisor." }}
{{- end }}
{{- $own := "the chart sets it itself, so leave it out" }}
{{- $secret := "it is a credential, and would be in a ConfigMap. Name a Secret in the value database or environmentFromSecrets" }}
{{- range $name, $why := dict
  "data_dir" $own "host" $own "port" $own "log_format" $own
  "allowed_hosts" "it is the value allowedHosts"
  "database_url" $secret "admin_token" $secret "alert_url" $secret "alert_secret" $secret }}
{{- if regexMatch (printf "(?m)^[ \t\"']*%s[ \t\"']*=" $name) $.Values.settings }}
{{- fail (printf "settings: %s: %s." $name $why) }}
{{- end }}
{{- end }}
{{- end }}

{{/* How many pods there are at once. */}}
{{- define "spot.replicas" -}}
{{- if .Values.migrate }}1{{ else }}{{ .Values.replicas }}{{ end }}
{{- end }}

{{/* What the server and its migration have in common. */}}
{{- define "spot.container" -}}
image: "{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
resources:
  {{- toYaml .Values.resources | nindent 2 }}
env:
  - name: SPOT_CONFIG
    value: /etc/spot/settings/spot.toml
  - name: SPOT_DATA_DIR
    value: /var/lib/spot/data
  - name: SPOT_HOST
    value: "0.0.0.0"
  - name: SPOT_PORT
    value: "8787"
  - name: SPOT_LOG_FORMAT
    value: json
  - name: SPOT_ALLOWED_HOSTS
    value: {{ include "spot.hosts" . | quote }}
  {{- if not .Values.sqlite.enabled }}
  - name: SPOT_DATABASE_URL
    value: file:/etc/spot/database/url
  {{- end }}
  {{- if .Values.adminToken.secret }}
  - name: SPOT_ADMIN_TOKEN
    value: file:/etc/spot/admin-token/token
  {{- end }}
  {{- if .Values.runsNamespace }}
  - name: SPOT_KUBERNETES_NAMESPACE
    value: {{ .Values.runsNamespace }}
  {{- if .Values.store.claim }}
  - name: SPOT_KUBERNETES_CLAIM
    value: {{ .Values.store.claim }}
  - name: SPOT_KUBERNETES_CLAIM_MOUNT
    value: {{ .Values.store.path }}
  {{- end }}
  {{- end }}
  {{- range $name, $source := .Values.environmentFromSecrets }}
  - name: {{ $name }}
    valueFrom:
      secretKeyRef:
        name: {{ $source.secret }}
        key: {{ $source.key }}
  {{- end }}
volumeMounts:
  - name: settings
    mountPath: /etc/spot/settings
    readOnly: true
  {{- if not .Values.sqlite.enabled }}
  - name: database
    mountPath: /etc/spot/database
    readOnly: true
  {{- end }}
  {{- if .Values.adminToken.secret }}
  - name: admin-token
    mountPath: /etc/spot/admin-token
    readOnly: true
  {{- end }}
  - name: data
    mountPath: /var/lib/spot
  - name: tmp
    mountPath: /tmp
  {{- if .Values.store.claim }}
  - name: store
    mountPath: {{ .Values.store.path }}
  {{- end }}
{{- end }}

{{/* The names of the Service, the ingress's, and those of the values; longer ones are no allowed_hosts. */}}
{{- define "spot.hosts" -}}
{{- $service := printf "%s.%s" .Release.Name .Release.Namespace }}
{{- $names := list .Release.Name $service (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) }}
{{- if .Values.ingress.enabled }}
{{- $names = append $names .Values.ingress.host }}
{{- end }}
{{- $hosts := list }}
{{- range concat $names .Values.allowedHosts | uniq }}
{{- if le (len .) 63 }}
{{- $hosts = append $hosts . }}
{{- end }}
{{- end }}
{{- join "," $hosts }}
{{- end }}

{{/* The supervisor responds under its own names only; localhost is one of them. */}}
{{- define "spot.probe" -}}
httpGet:
  path: {{ . }}
  port: http
  httpHeaders:
    - name: Host
      value: localhost
timeoutSeconds: 5
{{- end }}
