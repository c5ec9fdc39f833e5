/* resolve.c - names of hosts: ZeroMQ binds numbers alone, and connects to names
 * by IPv4 alone unless told. */
#include "net/resolve.h"
#include "net/limits.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* The host of "tcp://host:port", if it is a name. */
static bool name_in(const char *address, fl_address host)
{
    const char *colon = strrchr(address, ':');
    struct in_addr v4;

    if (strncmp(address, "tcp://", 6) != 0 || colon <= address + 6)
        return false;
    snprintf(host, FL_ADDRESS_SIZE, "%.*s", (int)(colon - address - 6),
             address + 6);
    return *host != '[' && *host != '*' && inet_pton(AF_INET, host, &v4) != 1;
}

static int look_up(const char *host, int family, struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_family = family,
                                   .ai_socktype = SOCK_STREAM};

    *found = NULL;
    return getaddrinfo(host, NULL, &hints, found);
}

/* IPv4 first: what listens and what connects must mean the same one. */
static int look_up_any(const char *host, struct addrinfo **found)
{
    int e = look_up(host, AF_INET, found);

    return e && look_up(host, AF_INET6, found) == 0 ? 0 : e;
}

static void print_number(const struct sockaddr *a, const char *port,
                         fl_address numeric)
{
    char number[INET6_ADDRSTRLEN];
    const void *v4 = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    const void *v6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    bool six = a->sa_family == AF_INET6;

    inet_ntop(a->sa_family, six ? v6 : v4, number, sizeof number);
    snprintf(numeric, FL_ADDRESS_SIZE, six ? "tcp://[%s]%s" : "tcp://%s%s",
             number, port);
}

fleet_status fl_address_resolve(const char *address, fl_address numeric)
{
    struct addrinfo *found;
    fl_address host;
    int e;

    snprintf(numeric, FL_ADDRESS_SIZE, "%s", address);
    if (!name_in(address, host))
        return FLEET_OK;
    e = look_up_any(host, &found);
    if (e)
        return fl_fail(FLEET_EIO, "%s: no address of that host: %s", host,
                       gai_strerror(e));
    print_number(found->ai_addr, strrchr(address, ':'), numeric);
    freeaddrinfo(found);
    return FLEET_OK;
}

bool fl_address_is_local(const char *numeric)
{
    return strncmp(numeric, "tcp://", 6) != 0 ||
           strncmp(numeric, "tcp://127.", 10) == 0 ||
           strncmp(numeric, "tcp://[::1]:", 12) == 0;
}

fleet_status fl_address_check_keyless(const char *name, const char *numeric,
                                      int fd)
{
    if (fl_address_is_local(numeric) && (fd < 0 || fl_descriptor_is_local(fd)))
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s would listen at %s, which other machines reach, without "
                   "keys: FLEET_KEYS names a folder of keys, made by "
                   "\"fleetrun keys FOLDER\"; FLEET_INSECURE=1 lets everybody "
                   "in",
                   name, numeric);
}

bool fl_address_is_ipv6(const char *address)
{
    struct addrinfo *found;
    fl_address host;
    bool six;

    if (!name_in(address, host))
        return strchr(address, '[') != NULL;
    if (look_up_any(host, &found) != 0)
        return false;
    six = found->ai_family == AF_INET6;
    freeaddrinfo(found);
    return six;
}
