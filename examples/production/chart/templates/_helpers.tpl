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

{{- define "vlmsearch.store" -}}
{{- if not (has .Values.store (list "mongodb+chroma" "postgresql")) -}}
{{- fail (printf "store is mongodb+chroma or postgresql, not %s" .Values.store) -}}
{{- end -}}
{{- .Values.store -}}
{{- end -}}

{{- /* The URL of an index in this release's own database. */ -}}
{{- define "vlmsearch.storeUrl" -}}
{{- if eq (include "vlmsearch.store" .root) "postgresql" -}}
{{- if not (regexMatch "^[a-z_][a-z0-9_]{0,39}$" .index) -}}
{{- fail (printf "an index in PostgreSQL has up to 40 small letters, digits and _ as its name, not %s" .index) -}}
{{- end -}}
{{- $postgresql := include "vlmsearch.name" (dict "root" .root "part" "postgresql") -}}
{{- printf "postgresql://vlmsearch@%s:5432/vlmsearch?schema=vlmsearch&table=%s&tls=false" $postgresql .index -}}
{{- else -}}
{{- $mongodb := include "vlmsearch.name" (dict "root" .root "part" "mongodb") -}}
{{- $chroma := include "vlmsearch.name" (dict "root" .root "part" "chroma") -}}
{{- printf "mongodb+chroma://%s:27017/%s?chroma=http://%s:8000" $mongodb .index $chroma -}}
{{- end -}}
{{- end -}}
