/* nvidia-smi of a simulated host: the options that repair tools use, with the return codes of the real one.
 *
 *   nvidia-smi [-q]                               the long report
 *   nvidia-smi -L                                 the GPUs
 *   nvidia-smi --query-gpu=F,.. --format=csv[,noheader][,nounits] [-i ID]
 *   nvidia-smi --query-compute-apps=F,.. --format=csv[,noheader][,nounits]
 *   nvidia-smi --gpu-reset|-r [-i ID[,ID..]]      ID: index, UUID or PCI address
 *
 * Readings come from the state file. A reset is the machine's own affair (simulator/host/control.py): this program only
 * names the GPUs, waits, and repeats the answer.
 */
#include "gpu_state.h"
#include "host_control.h"
#include "smi_query.h"

#include <stdio.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NO_GPU = 6, NO_DRIVER = 9, LOST = 15 };

struct arguments {
    const char *ids, *gpu_fields, *app_fields, *format;
    bool list, report, reset;
};

static const char *value_of(const char *argument, const char *option)
{
    size_t length = strlen(option);
    return strncmp(argument, option, length) == 0 && argument[length] == '=' ? argument + length + 1 : NULL;
}

static bool parse(int count, char **words, struct arguments *arguments)
{
    for (int i = 1; i < count; i++) {
        const char *word = words[i], *value;
        if (strcmp(word, "-L") == 0 || strcmp(word, "--list-gpus") == 0)
            arguments->list = true;
        else if (strcmp(word, "-q") == 0 || strcmp(word, "--query") == 0)
            arguments->report = true;
        else if (strcmp(word, "-r") == 0 || strcmp(word, "--gpu-reset") == 0)
            arguments->reset = true;
        else if ((strcmp(word, "-i") == 0 || strcmp(word, "--id") == 0) && i + 1 < count)
            arguments->ids = words[++i];
        else if ((value = value_of(word, "--id")))
            arguments->ids = value;
        else if ((value = value_of(word, "--query-gpu")))
            arguments->gpu_fields = value;
        else if ((value = value_of(word, "--query-compute-apps")))
            arguments->app_fields = value;
        else if ((value = value_of(word, "--format")))
            arguments->format = value;
        else {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
            return false;
        }
    }
    return true;
}

/* Leaves only the named GPUs in the state, in the file's order. */
static int select_gpus(struct gpu_state *state, const char *ids)
{
    char names[LONG_TEXT];
    bool chosen[MAX_GPUS] = {false};
    unsigned kept = 0;

    snprintf(names, sizeof names, "%s", ids);
    for (char *rest = NULL, *id = strtok_r(names, ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
        const struct gpu *gpu = find_gpu(state, id);
        if (!gpu) {
            printf("No devices were found: \"%s\" is not a GPU of this host.\n", id);
            return NO_GPU;
        }
        chosen[gpu->index] = true;
    }
    for (unsigned i = 0; i < state->gpu_count; i++)
        if (chosen[i])
            state->gpus[kept++] = state->gpus[i];
    state->gpu_count = kept;
    return OK;
}

static int reset(const struct gpu_state *state)
{
    char request[LONG_TEXT] = "reset";
    for (unsigned i = 0; i < state->gpu_count; i++) {
        size_t length = strlen(request);
        snprintf(request + length, sizeof request - length, " %s", state->gpus[i].uuid);
    }
    return ask_machine(state->control, request);
}

/* The first GPU that cannot be read ends the program, after what could be printed before it. */
static int print_gpus(const struct gpu_state *state, const struct arguments *arguments)
{
    if (arguments->report)
        print_report_head(state);
    for (unsigned i = 0; i < state->gpu_count; i++) {
        const struct gpu *gpu = &state->gpus[i];
        if (gpu->hangs)
            hang();
        if (gpu->error == LOST) {
            printf("Unable to determine the device handle for GPU%u: %s: GPU is lost.  Reboot the system to recover "
                   "this GPU\n", gpu->index, gpu->pci);
            return LOST;
        }
        if (arguments->list)
            printf("GPU %u: %s (UUID: %s)\n", gpu->index, gpu->name, gpu->uuid);
        else if (arguments->gpu_fields)
            print_gpu_row(state, gpu, arguments->gpu_fields, arguments->format);
        else if (arguments->app_fields)
            print_app_rows(gpu, arguments->app_fields, arguments->format);
        else
            print_report(gpu);
    }
    return OK;
}

static int check_query(const struct arguments *arguments)
{
    if ((arguments->gpu_fields || arguments->app_fields) && !(arguments->format && strstr(arguments->format, "csv"))) {
        printf("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n");
        return INVALID;
    }
    if (arguments->gpu_fields)
        return check_gpu_fields(arguments->gpu_fields, arguments->format) ? OK : INVALID;
    if (arguments->app_fields)
        return check_app_fields(arguments->app_fields, arguments->format) ? OK : INVALID;
    return OK;
}

int main(int count, char **words)
{
    struct arguments arguments = {0};
    struct gpu_state state;
    int code;

    setvbuf(stdout, NULL, _IOLBF, 0); /* what was said before a hang is seen */
    if (!parse(count, words, &arguments))
        return INVALID;
    if (!read_gpu_state(&state) || state.init_error == NO_DRIVER) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
               "latest NVIDIA driver is installed and running.\n\n");
        return NO_DRIVER;
    }
    if (state.hangs)
        hang();
    if (state.init_error) {
        printf("Failed to initialize NVML: error %d\n", state.init_error);
        return state.init_error;
    }
    arguments.report |= !arguments.list && !arguments.reset && !arguments.gpu_fields && !arguments.app_fields;
    if ((code = check_query(&arguments)) || (arguments.ids && (code = select_gpus(&state, arguments.ids))))
        return code;
    if (state.gpu_count == 0) {
        printf("No devices were found\n");
        return NO_GPU;
    }
    return arguments.reset ? reset(&state) : print_gpus(&state, &arguments);
}
