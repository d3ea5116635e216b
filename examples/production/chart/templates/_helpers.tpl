{{- define "vlmsearch.name" -}}
{{- printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "vlmsearch.selector" -}}
app.kubernetes.io/name: vlmsearch
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "vlmsearch.labels" -}}
{{ include "vlmsearch.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "vlmsearch.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "vlmsearch.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "vlmsearch.claim" -}}
accessModes: [ReadWriteOnce]
{{- if .storageClass }}
storageClassName: {{ .storageClass | quote }}
{{- end }}
resources: { requests: { storage: {{ .size }} } }
{{- end -}}

{{- define "vlmsearch.headless" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "vlmsearch.name" . }}
  labels:
    {{- include "vlmsearch.labels" . | nindent 4 }}
spec:
  selector:
    {{- include "vlmsearch.selector" . | nindent 4 }}
  ports:
    {{- range $name, $port := .ports }}
    - { name: {{ $name }}, port: {{ $port }}, targetPort: {{ $name }} }
    {{- end }}
{{- end -}}
