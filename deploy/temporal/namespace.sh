#!/bin/sh
# Makes the namespace of our workflows unless it is there. Run by docker-compose.yml once the server answers.
# Thirty days of retention: a machine's past incidents raise the first rung of its next one for as long as they are kept.
set -eu

temporal operator cluster health
temporal operator namespace describe --namespace default >/dev/null 2>&1 ||
    temporal operator namespace create --namespace default --retention 30d
