/* One request over a local socket; see host_control.h. */
#include "host_control.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { UNREACHABLE = 255 };

static int connect_to(const char *address)
{
    char host[64];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found = NULL;
    const char *colon = strrchr(address, ':');
    if (!colon || (size_t)(colon - address) >= sizeof host)
        return -1;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return -1;
    int connection = socket(found->ai_family, found->ai_socktype, 0);
    if (connection >= 0 && connect(connection, found->ai_addr, found->ai_addrlen) != 0) {
        close(connection);
        connection = -1;
    }
    freeaddrinfo(found);
    return connection;
}

int ask_machine(const char *address, const char *request)
{
    char line[512];
    int code = UNREACHABLE;
    int connection = connect_to(address);
    FILE *stream = connection >= 0 ? fdopen(connection, "r+") : NULL;
    if (!stream) {
        fprintf(stderr, "the simulated machine at '%s' does not answer\n", address);
        return UNREACHABLE;
    }
    fprintf(stream, "%s\n", request);
    fflush(stream);
    if (fgets(line, sizeof line, stream))
        code = atoi(line);
    while (fgets(line, sizeof line, stream))
        fputs(line, stdout);
    fclose(stream);
    return code;
}
