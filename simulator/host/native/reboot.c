/* The reboot program of a simulated host: asks its machine to reboot and returns at once, as systemctl does. */
#include "gpu_state.h"
#include "host_control.h"

#include <stdio.h>

int main(void)
{
    struct gpu_state state;
    if (!read_gpu_state(&state)) {
        fprintf(stderr, "reboot: SICKBAY_SIM_GPU_STATE names no state file of a simulated host\n");
        return 1;
    }
    return ask_machine(state.control, "reboot");
}
