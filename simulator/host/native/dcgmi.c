/* dcgmi of a simulated host, with the options that health checks use and the return codes of the real one.
 *
 *   dcgmi health -c [-j]      what the watches see; an error until they are on
 *   dcgmi health -s a         switches the watches on, until the next boot
 *   dcgmi diag -r LEVEL -j    one run, in the shape of DCGM 4, or of 3 if SICKBAY_SIM_DCGM is 3
 *   dcgmi discovery -l        the GPUs with their addresses
 *   dcgmi nvlink -s           the states of all links
 *
 * Readings come from the state file; that the watches are on is a file beside it that holds the boot's id.
 */
#include "gpu_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 256 - DCGM_ST_*: generic error, NVML not loaded, a test that isolates a GPU, one that does not. */
enum { OK = 0, WRONG_USE = 255, GENERIC = 253, NO_NVML = 200, ISOLATE = 205, FAILED_TEST = 226 };
enum { MONITOR = 1, ISOLATED = 2, RESET = 6 };
enum { NVML_GPU_IS_LOST = 15, NVML_RESET_REQUIRED = 16 };

/* What DCGM says of one sick GPU: its health system, its number of the error and how grave it is. */
struct incident {
    const char *system;
    int error, severity;
    char text[TEXT * 2];
};

static bool incident_of(const struct gpu *gpu, struct incident *incident)
{
    static const int recovery_errors[] = {0, 125, 126, 127, 128};
    size_t size = sizeof incident->text;

    if (gpu->error == NVML_GPU_IS_LOST) {
        *incident = (struct incident){.system = "PCIe system", .error = 120, .severity = ISOLATED};
        snprintf(incident->text, size, "GPU %u has fallen off the bus.", gpu->index);
    } else if (gpu->remap_failed) {
        *incident = (struct incident){.system = "Memory system", .error = 80, .severity = ISOLATED};
        snprintf(incident->text, size, "GPU %u had uncorrectable memory errors and row remapping failed.",
                 gpu->index);
    } else if (gpu->remap_pending) {
        *incident = (struct incident){.system = "Memory system", .error = 85, .severity = RESET};
        snprintf(incident->text, size, "GPU %u had memory errors and row remappings are pending", gpu->index);
    } else if (gpu->uncorrected_errors) {
        *incident = (struct incident){.system = "Memory system", .error = 4, .severity = ISOLATED};
        snprintf(incident->text, size, "Detected %llu volatile double-bit ECC error(s) in GPU %u.",
                 gpu->uncorrected_errors, gpu->index);
    } else if (gpu->error == NVML_RESET_REQUIRED) {
        *incident = (struct incident){.system = "Driver", .error = 125, .severity = RESET};
        snprintf(incident->text, size, "GPU %u requires a reset to recover from a fault", gpu->index);
    } else if (gpu->recovery_action > 0 && gpu->recovery_action <= 4) {
        *incident = (struct incident){
            .system = "Driver", .error = recovery_errors[gpu->recovery_action], .severity = RESET};
        snprintf(incident->text, size, "GPU %u asks for recovery action %d", gpu->index, gpu->recovery_action);
    } else {
        return false;
    }
    return true;
}

static bool watches_file(char *path, size_t size, char *boot_id, size_t boot_size)
{
    const char *state = getenv("SICKBAY_SIM_GPU_STATE");
    char boot[LONG_TEXT];
    const char *slash = state ? strrchr(state, '/') : NULL;
    int folder = slash ? (int)(slash - state) : 0;

    if (!slash)
        return false;
    snprintf(path, size, "%.*s/dcgm-watches", folder, state);
    snprintf(boot, sizeof boot, "%.*s/boot_id", folder, state);
    FILE *file = fopen(boot, "re");
    bool read = file && fgets(boot_id, (int)boot_size, file);
    if (file)
        fclose(file);
    return read;
}

static bool watched(void)
{
    char path[LONG_TEXT], boot_id[TEXT], since[TEXT];
    FILE *file;

    if (!watches_file(path, sizeof path, boot_id, sizeof boot_id) || !(file = fopen(path, "re")))
        return false;
    bool same = fgets(since, sizeof since, file) && strcmp(since, boot_id) == 0;
    fclose(file);
    return same;
}

static int watch(void)
{
    char path[LONG_TEXT], boot_id[TEXT];
    FILE *file;

    if (!watches_file(path, sizeof path, boot_id, sizeof boot_id) || !(file = fopen(path, "we")))
        return GENERIC;
    fputs(boot_id, file);
    fclose(file);
    printf("Health monitor systems set successfully.\n");
    return OK;
}

static int health(const struct gpu_state *state)
{
    struct incident incident;
    bool sick = false;

    if (!watched()) {
        printf("Error: Health watches not enabled. Please enable watches. \n");
        return GENERIC;
    }
    for (unsigned i = 0; i < state->gpu_count; i++)
        sick |= incident_of(&state->gpus[i], &incident);
    printf("{\"header\":[\"Health Monitor Report\"],\"body\":{\"Overall Health\":{\"value\":\"%s\"}",
           sick ? "Failure" : "Healthy");
    const char *before = ",\"GPU\":{\"children\":{";
    for (unsigned i = 0; i < state->gpu_count; i++) {
        if (!incident_of(&state->gpus[i], &incident))
            continue;
        printf("%s\"%u\":{\"value\":\"Failure\",\"children\":{\"Errors\":{\"children\":{\"%s\":"
               "{\"value\":\"Failure\",\"overflow\":[\"%s\"]}}}}}",
               before, i, incident.system, incident.text);
        before = ",";
    }
    printf("%s}}\n", sick ? "}}" : "");
    return OK;
}

static void warning(const struct gpu *gpu, const struct incident *incident, bool old)
{
    if (old)
        printf("{\"gpu_id\":\"%u\",\"status\":\"Fail\",\"warnings\":[\"%s\"]}", gpu->index, incident->text);
    else
        printf("{\"entity_group\":\"GPU\",\"entity_group_id\":1,\"entity_id\":%u,\"status\":\"Fail\",\"warnings\":"
               "[{\"warning\":\"%s\",\"error_id\":%d,\"error_category\":10,\"error_severity\":%d}]}",
               gpu->index, incident->text, incident->error, incident->severity);
}

/* One test of all GPUs; the return code that the run has by it. */
static int test(const struct gpu_state *state, const char *name, bool old)
{
    struct incident incident;
    int code = OK;

    printf("{\"name\":\"%s\",\"results\":[", name);
    for (unsigned i = 0; i < state->gpu_count; i++) {
        if (i)
            printf(",");
        if (incident_of(&state->gpus[i], &incident)) {
            warning(&state->gpus[i], &incident, old);
            code = incident.severity == MONITOR ? FAILED_TEST : ISOLATE;
        } else if (old) {
            printf("{\"gpu_id\":\"%u\",\"status\":\"Pass\"}", i);
        } else {
            printf("{\"entity_group\":\"GPU\",\"entity_group_id\":1,\"entity_id\":%u,\"status\":\"Pass\"}", i);
        }
    }
    printf(old ? "]}" : "],\"test_summary\":{\"status\":\"%s\"}}", code ? "Fail" : "Pass");
    return code;
}

static int diag(const struct gpu_state *state, int level)
{
    static const char *const tests[][2] = {{"Inforom", "software"}, {"GPU Memory", "memory"}, {"PCIe", "pcie"}};
    const char *version = getenv("SICKBAY_SIM_DCGM");
    bool old = version && strcmp(version, "3") == 0;
    int code = OK;

    printf("{\"%s\":{\"test_categories\":[{\"category\":\"Deployment\",\"tests\":[",
           old ? "DCGM GPU Diagnostic" : "DCGM Diagnostic");
    for (int i = 0; i < (level > 1 ? 3 : 1); i++) {
        if (i)
            printf(",");
        int found = test(state, tests[i][old ? 0 : 1], old);
        code = found ? found : code;
    }
    printf("]}]}");
    if (!old) {
        printf(",\"entity_groups\":[{\"entity_group\":\"GPU\",\"entity_group_id\":1,\"entities\":[");
        for (unsigned i = 0; i < state->gpu_count; i++)
            printf("%s{\"entity_id\":%u,\"serial_num\":\"%s\"}", i ? "," : "", i, state->gpus[i].serial);
        printf("]}],\"metadata\":{\"version\":\"4.4.1\",\"Driver Version Detected\":\"%s\"}", state->driver);
    }
    printf("}\n");
    return code;
}

static int discovery(const struct gpu_state *state)
{
    const char *border = "+--------+----------------------------------------------------------------------+";

    printf("%u GPUs found.\n%s\n| GPU ID | Device Information%52s|\n%s\n", state->gpu_count, border, "", border);
    for (unsigned i = 0; i < state->gpu_count; i++) {
        const struct gpu *gpu = &state->gpus[i];
        printf("| %-6u | Name: %-63s|\n|        | PCI Bus ID: %-57s|\n|        | Device UUID: %-56s|\n%s\n", i,
               gpu->name, gpu->pci, gpu->uuid, border);
    }
    return OK;
}

static int nvlinks(const struct gpu_state *state)
{
    printf("+----------------------+\n|  NvLink Link Status  |\n+----------------------+\nGPUs:\n");
    for (unsigned i = 0; i < state->gpu_count; i++) {
        const struct gpu *gpu = &state->gpus[i];
        printf("    gpuId %u:\n       ", i);
        for (unsigned link = 0; link < gpu->links; link++)
            printf(" %c", gpu->links_down >> link & 1 ? 'D' : 'U');
        printf("%s\n", gpu->links ? "" : " _");
    }
    printf("NvSwitches:\n    No NvSwitches found.\n\nKey: Up=U, Down=D, Disabled=X, Not Supported=_\n");
    return OK;
}

static bool wants(int count, char **words, const char *option)
{
    for (int i = 2; i < count; i++)
        if (strcmp(words[i], option) == 0)
            return true;
    return false;
}

static int answer(const struct gpu_state *state, int count, char **words)
{
    if (strcmp(words[1], "health") == 0 && wants(count, words, "-c"))
        return health(state);
    if (strcmp(words[1], "health") == 0 && wants(count, words, "-s"))
        return watch();
    if (strcmp(words[1], "diag") == 0 && count > 3 && strcmp(words[2], "-r") == 0)
        return diag(state, atoi(words[3]));
    if (strcmp(words[1], "discovery") == 0 && wants(count, words, "-l"))
        return discovery(state);
    if (strcmp(words[1], "nvlink") == 0 && wants(count, words, "-s"))
        return nvlinks(state);
    printf("PARSE ERROR: use dcgmi health, diag, discovery or nvlink\n");
    return WRONG_USE;
}

int main(int count, char **words)
{
    struct gpu_state state;

    if (count < 2)
        return WRONG_USE;
    if (!read_gpu_state(&state) || state.init_error) {
        printf("Error: unable to establish a connection to the driver: NVML is not loaded\n");
        return NO_NVML;
    }
    if (state.hangs)
        hang();
    for (unsigned i = 0; i < state.gpu_count; i++)
        if (state.gpus[i].hangs)
            hang();
    return answer(&state, count, words);
}
