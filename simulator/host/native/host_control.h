/* How a simulated host's programs reach the machine that they run on (simulator/host/control.py). */
#ifndef SICKBAY_HOST_CONTROL_H
#define SICKBAY_HOST_CONTROL_H

/* Sends one request line to `host:port`, prints what the machine answers, and gives the exit code that it tells.
 * Waits as long as the machine does: a reset on a wedged driver never ends. 255 if the machine cannot be reached. */
int ask_machine(const char *address, const char *request);

#endif
