/* The init process of a simulated host: runs one program, and leaves nothing of it behind.
 *
 *   machine-init PROGRAM [ARGUMENT..]
 *
 * The simulator holds the other end of this process's standard input. When that closes (the simulator powers the
 * machine off, or has died in whatever way), every descendant is killed, those in sessions of their own too: as a
 * child subreaper this process inherits them one by one. Letters on standard input act on the program alone:
 * `t` asks it to end (SIGTERM), `k` kills it, `s` freezes it and `c` thaws it. Exits with the program's exit code once
 * it has ended, after killing what it left.
 */
#define _GNU_SOURCE /* ppoll */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLED = 128 + SIGKILL, CANNOT_RUN = 127 };

static volatile sig_atomic_t child_ended;

static void note_end(int number)
{
    (void)number;
    child_ended = 1;
}

/* Kills the direct children; their own children become ours and are met in the next round. */
static void kill_children(void)
{
    char path[64];
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "re");
    while (children && fscanf(children, "%d", &pid) == 1)
        kill(pid, SIGKILL);
    if (children)
        fclose(children);
}

static void kill_all(void)
{
    do
        kill_children();
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
}

static void act(char letter, pid_t program)
{
    switch (letter) {
    case 't': kill(program, SIGTERM); break;
    case 'k': kill(program, SIGKILL); break;
    case 's': kill(program, SIGSTOP); break;
    case 'c': kill(program, SIGCONT); break;
    }
}

/* Reaps whoever has ended; true with the code once the program itself has. */
static bool reap(pid_t program, int *code)
{
    int status;
    pid_t ended;
    bool over = false;
    child_ended = 0;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
        if (ended == program) {
            *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            over = true;
        }
    return over;
}

static pid_t start(char **words, const sigset_t *signals)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should this process itself be killed */
    if (getppid() != parent)
        _exit(KILLED);
    sigprocmask(SIG_SETMASK, signals, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (!freopen("/dev/null", "r", stdin))
        _exit(CANNOT_RUN);
    setsid();
    execvp(words[0], words);
    perror(words[0]);
    _exit(CANNOT_RUN);
}

int main(int count, char **words)
{
    struct sigaction action = {.sa_handler = note_end};
    sigset_t blocked, before;
    int code = KILLED;

    if (count < 2) {
        fprintf(stderr, "usage: machine-init PROGRAM [ARGUMENT..]\n");
        return 2;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGCHLD, &action, NULL);
    signal(SIGINT, SIG_IGN); /* a Ctrl-C at the terminal is for the simulator, which ends us in its own order */
    signal(SIGTERM, SIG_IGN);

    pid_t program = start(words + 1, &before);
    for (bool over = program < 0; !over;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        char letter;
        if (ppoll(&input, 1, NULL, &before) > 0) {
            if (read(STDIN_FILENO, &letter, 1) != 1)
                break;
            act(letter, program);
        }
        if (child_ended)
            over = reap(program, &code);
    }
    kill_all();
    return code;
}
