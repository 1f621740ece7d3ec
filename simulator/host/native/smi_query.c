/* The fields that nvidia-smi knows here; see smi_query.h. */
#include "smi_query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUIRES_RESET = 16, MEBIBYTE = 1 << 20 };

typedef void (*field_writer)(char *out, size_t size, const struct gpu_state *state, const struct gpu *gpu);

struct field {
    const char *name, *unit;
    field_writer write;
};

static const char *yes_or_no(bool value)
{
    return value ? "Yes" : "No";
}

static const char *recovery_action(const struct gpu *gpu)
{
    static const char *const words[] = {
        "None", "GPU Reset", "Node Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain", "Bus Reset",
        "System Reboot",
    };
    int known = (int)(sizeof words / sizeof *words);
    return gpu->recovery_action >= 0 && gpu->recovery_action < known ? words[gpu->recovery_action] : "N/A";
}

static unsigned long long used_bytes(const struct gpu *gpu)
{
    return gpu->user_count ? gpu->memory_bytes / 2 : 0;
}

#define WRITER(name, ...)                                                                                      \
    static void name(char *out, size_t size, const struct gpu_state *state, const struct gpu *gpu)             \
    {                                                                                                          \
        (void)state;                                                                                           \
        (void)gpu;                                                                                             \
        snprintf(out, size, __VA_ARGS__);                                                                      \
    }

WRITER(write_index, "%u", gpu->index)
WRITER(write_uuid, "%s", gpu->uuid)
WRITER(write_name, "%s", gpu->name)
WRITER(write_pci, "%s", gpu->pci)
WRITER(write_serial, "%s", gpu->serial)
WRITER(write_driver, "%s", state->driver)
WRITER(write_count, "%u", state->gpu_count)
WRITER(write_memory_total, "%llu", gpu->memory_bytes / MEBIBYTE)
WRITER(write_memory_used, "%llu", used_bytes(gpu) / MEBIBYTE)
WRITER(write_uncorrected, "%llu", gpu->uncorrected_errors)
WRITER(write_zero, "0")
WRITER(write_mig, "Disabled")
WRITER(write_remap_pending, "%s", yes_or_no(gpu->remap_pending))
WRITER(write_remap_failed, "%s", yes_or_no(gpu->remap_failed))
WRITER(write_recovery, "%s", recovery_action(gpu))

static const struct field GPU_FIELDS[] = {
    {"index", "", write_index},
    {"uuid", "", write_uuid},
    {"gpu_uuid", "", write_uuid},
    {"name", "", write_name},
    {"gpu_name", "", write_name},
    {"pci.bus_id", "", write_pci},
    {"gpu_bus_id", "", write_pci},
    {"serial", "", write_serial},
    {"driver_version", "", write_driver},
    {"count", "", write_count},
    {"memory.total", "MiB", write_memory_total},
    {"memory.used", "MiB", write_memory_used},
    {"ecc.errors.uncorrected.volatile.total", "", write_uncorrected},
    {"ecc.errors.uncorrected.aggregate.total", "", write_uncorrected},
    {"ecc.errors.corrected.volatile.total", "", write_zero},
    {"remapped_rows.pending", "", write_remap_pending},
    {"remapped_rows.failure", "", write_remap_failed},
    {"mig.mode.current", "", write_mig},
    {"gpu_recovery_action", "", write_recovery},
    {NULL, NULL, NULL},
};

static const struct field APP_FIELDS[] = {
    {"gpu_uuid", "", NULL},
    {"pid", "", NULL},
    {"process_name", "", NULL},
    {"used_memory", "MiB", NULL},
    {NULL, NULL, NULL},
};

static const struct field *find_field(const struct field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (strcmp(fields->name, name) == 0)
            return fields;
    return NULL;
}

static bool check_fields(const struct field *known, const char *fields, const char *format)
{
    char names[LONG_TEXT], header[2 * LONG_TEXT] = "";
    snprintf(names, sizeof names, "%s", fields);
    for (char *rest = NULL, *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
        const struct field *field = find_field(known, name);
        if (!field) {
            printf("Field \"%s\" is not a valid field to query.\n\n", name);
            return false;
        }
        size_t length = strlen(header);
        snprintf(header + length, sizeof header - length, *field->unit ? "%s%s [%s]" : "%s%s", length ? ", " : "", name,
                 field->unit);
    }
    if (!strstr(format, "noheader"))
        printf("%s\n", header);
    return true;
}

bool check_gpu_fields(const char *fields, const char *format)
{
    return check_fields(GPU_FIELDS, fields, format);
}

bool check_app_fields(const char *fields, const char *format)
{
    return check_fields(APP_FIELDS, fields, format);
}

static void print_value(const char *value, const char *unit, const char *format, bool first)
{
    bool with_unit = *unit && !strstr(format, "nounits");
    printf(with_unit ? "%s%s %s" : "%s%s", first ? "" : ", ", value, unit);
}

/* A GPU that wants a reset tells who it is, and nothing else. */
static bool answers(const struct gpu *gpu, const struct field *field)
{
    return gpu->error == 0 || field->write == write_index || field->write == write_uuid || field->write == write_name ||
           field->write == write_pci || field->write == write_serial || field->write == write_recovery;
}

void print_gpu_row(const struct gpu_state *state, const struct gpu *gpu, const char *fields, const char *format)
{
    char names[LONG_TEXT], value[TEXT];
    bool first = true;
    snprintf(names, sizeof names, "%s", fields);
    for (char *rest = NULL, *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
        const struct field *field = find_field(GPU_FIELDS, name);
        if (answers(gpu, field))
            field->write(value, sizeof value, state, gpu);
        else
            snprintf(value, sizeof value, gpu->error == REQUIRES_RESET ? "[GPU requires reset]" : "[Unknown Error]");
        print_value(value, answers(gpu, field) ? field->unit : "", format, first);
        first = false;
    }
    printf("\n");
}

void print_app_rows(const struct gpu *gpu, const char *fields, const char *format)
{
    for (unsigned i = 0; i < gpu->user_count; i++) {
        char names[LONG_TEXT], value[TEXT];
        bool first = true;
        snprintf(names, sizeof names, "%s", fields);
        for (char *rest = NULL, *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
            const struct field *field = find_field(APP_FIELDS, name);
            if (strcmp(name, "pid") == 0)
                snprintf(value, sizeof value, "%u", gpu->users[i].pid);
            else if (strcmp(name, "process_name") == 0)
                snprintf(value, sizeof value, "%s", gpu->users[i].name);
            else if (strcmp(name, "used_memory") == 0)
                snprintf(value, sizeof value, "%llu", used_bytes(gpu) / gpu->user_count / MEBIBYTE);
            else
                snprintf(value, sizeof value, "%s", gpu->uuid);
            print_value(value, field->unit, format, first);
            first = false;
        }
        printf("\n");
    }
}

void print_report_head(const struct gpu_state *state)
{
    printf("\n==============NVSMI LOG==============\n\n");
    printf("%-42s: %s\n", "Driver Version", state->driver);
    printf("%-42s: %d.%d\n\n", "CUDA Version", state->cuda / 1000, state->cuda % 1000 / 10);
    printf("%-42s: %u\n", "Attached GPUs", state->gpu_count);
}

void print_report(const struct gpu *gpu)
{
    printf("GPU %s\n", gpu->pci);
    printf("    %-38s: %s\n", "Product Name", gpu->name);
    printf("    %-38s: %s\n", "Serial Number", gpu->serial);
    printf("    %-38s: %s\n", "GPU UUID", gpu->uuid);
    printf("    %-38s: %u\n", "Minor Number", gpu->minor);
    printf("    %-38s: %s\n", "GPU Recovery Action", recovery_action(gpu));
    printf("    ECC Errors\n        Volatile\n");
    printf("            %-30s: %llu\n", "DRAM Uncorrectable", gpu->uncorrected_errors);
    printf("    Remapped Rows\n");
    printf("        %-34s: %s\n", "Pending", yes_or_no(gpu->remap_pending));
    printf("        %-34s: %s\n", "Remapping Failure Occurred", yes_or_no(gpu->remap_failed));
    printf("    Processes%s\n", gpu->user_count ? "" : "                             : None");
    for (unsigned i = 0; i < gpu->user_count; i++) {
        printf("        %-34s: %u\n", "Process ID", gpu->users[i].pid);
        printf("            %-30s: %s\n", "Name", gpu->users[i].name);
    }
}
