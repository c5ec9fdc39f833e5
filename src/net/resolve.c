/* resolve.c - names of hosts, for sockets that listen: ZeroMQ binds numbers
 * alone. */
#include "net/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static fleet_status look_up(const char *host, char number[INET_ADDRSTRLEN])
{
    const struct addrinfo hints = {.ai_family = AF_INET,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int e = getaddrinfo(host, NULL, &hints, &found);

    if (e || !found)
        return fl_fail(FLEET_EIO, "%s: no address of that host: %s", host,
                       e ? gai_strerror(e) : "none");
    inet_ntop(
        AF_INET,
        &((const struct sockaddr_in *)(const void *)found->ai_addr)->sin_addr,
        number, INET_ADDRSTRLEN);
    freeaddrinfo(found);
    return FLEET_OK;
}

fleet_status fl_address_resolve(const char *address, fl_address numeric)
{
    const char *colon = strrchr(address, ':');
    fl_address host;
    char number[INET_ADDRSTRLEN];
    struct in_addr v4;

    snprintf(numeric, FL_ADDRESS_SIZE, "%s", address);
    if (strncmp(address, "tcp://", 6) != 0 || colon <= address + 6)
        return FLEET_OK;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address - 6),
             address + 6);
    if (*host == '[' || *host == '*' || inet_pton(AF_INET, host, &v4) == 1)
        return FLEET_OK;
    FL_TRY(look_up(host, number));
    snprintf(numeric, FL_ADDRESS_SIZE, "tcp://%s%s", number, colon);
    return FLEET_OK;
}
