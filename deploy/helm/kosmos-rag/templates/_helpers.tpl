{{- define "kosmos.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "kosmos.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kosmos.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}

{{- define "kosmos.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "kosmos.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "kosmos.env" -}}
- name: KOSMOS_CONFIG
  value: /etc/kosmos/rag-config.yaml
- name: KOSMOS_DATABASE__URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.secret | quote }}
      key: {{ .Values.database.urlKey | quote }}
- name: KOSMOS_DATABASE__WORKER_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.secret | quote }}
      key: {{ .Values.database.workerUrlKey | quote }}
{{- range .Values.secretEnv }}
- name: {{ .name | quote }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}

{{- define "kosmos.mounts" -}}
- name: config
  mountPath: /etc/kosmos
  readOnly: true
- name: models
  mountPath: /models
- name: tmp
  mountPath: /tmp
{{- end }}

{{- define "kosmos.volumes" -}}
- name: config
  configMap:
    name: {{ .Release.Name }}-config
- name: models
{{- if .Values.models.claim }}
  persistentVolumeClaim:
    claimName: {{ .Values.models.claim | quote }}
{{- else }}
  emptyDir:
    sizeLimit: {{ .Values.models.sizeLimit | quote }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmp.sizeLimit | quote }}
{{- end }}
