# syntax=docker/dockerfile:1
# Triton with the models: vlmsearch triton repo --out repository, then
# docker build -f triton.Dockerfile -t vlmsearch-triton .
FROM nvcr.io/nvidia/tritonserver:26.08-py3
COPY repository /models
RUN cd /models && pip install --no-cache-dir -r requirements.txt
USER 1000:1000
EXPOSE 8000 8001 8002
CMD ["tritonserver", "--model-repository=/models", "--exit-on-error=false", \
    "--backend-config=python,stub-timeout-seconds=120"]
