#!/bin/sh
# Makes Temporal's databases where they are missing, and brings their schemas up to the version of this image.
# Run by docker-compose.yml before each start of the server; SQL_... say where the database is. Safe to run again.
set -eu

for database in temporal temporal_visibility; do
    schema=temporal
    if [ "$database" = temporal_visibility ]; then
        schema=visibility
    fi
    # Both fail where they were done before; whether all is well is what the last step says.
    temporal-sql-tool --database "$database" create-database || true
    temporal-sql-tool --database "$database" setup-schema --version 0.0 || true
    temporal-sql-tool --database "$database" update-schema \
        --schema-dir "/etc/temporal/schema/postgresql/v12/$schema/versioned"
done
