/* env.c - texts, numbers and endpoints of the environment. */
#define _GNU_SOURCE
#include "fleet/role/env.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whatever the host's locale says. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

const char *fl_variable(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

bool fl_read_digits(const char *text, size_t length, int64_t high, int64_t *out)
{
    int64_t n = 0;

    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i]))
            return false;
        n = 10 * n + (text[i] - '0');
        if (n > high)
            return false;
    }
    *out = n;
    return length > 0;
}

fleet_status fl_variable_need(const char *name, const char *because,
                              const char *expected, const char **text)
{
    *text = fl_variable(name);
    if (*text)
        return FLEET_OK;
    return fl_fail(FLEET_ENOENT, "%s is not set, but %s is: expected %s", name,
                   because, expected);
}

fleet_status fl_variable_read(const char *name, const char *text, int low,
                              int high, int *out)
{
    int64_t n;

    if (!fl_read_digits(text, strlen(text), high, &n) || n < low)
        return fl_fail(FLEET_EINVAL,
                       "%s is \"%.100s\": expected an integer from %d to %d",
                       name, text, low, high);
    *out = (int)n;
    return FLEET_OK;
}

/* --- endpoints ------------------------------------------------------------ */

/* A name, or an IPv4 address that is one: 127.0.1 is a typing error. */
static bool is_plain_host(const char *host)
{
    struct in_addr v4;
    bool name = false;

    for (const char *c = host; *c; c++) {
        if (!is_letter(*c) && !is_digit(*c) && !strchr(".-_", *c))
            return false;
        name = name || is_letter(*c);
    }
    return *host && (name || inet_pton(AF_INET, host, &v4) == 1);
}

static bool is_host(const char *text, size_t length)
{
    struct in6_addr v6;
    fl_address host;

    memcpy(host, text, length);
    host[length] = 0;
    if (*host != '[')
        return is_plain_host(host);
    if (host[length - 1] != ']')
        return false;
    host[length - 1] = 0;
    return inet_pton(AF_INET6, host + 1, &v6) == 1;
}

fleet_status fl_read_endpoint(const char *source, const char *text,
                              size_t length, fl_address address)
{
    static const char inproc[] = "inproc://";
    const size_t prefix = sizeof inproc - 1;
    const char *colon = memrchr(text, ':', length);
    size_t host = colon ? (size_t)(colon - text) : 0;
    int64_t port = 0;

    if (length + sizeof "tcp://" > FL_ADDRESS_SIZE)
        return fl_fail(
            FLEET_EINVAL,
            "%s: \"%.*s...\": an endpoint of more than %d characters", source,
            40, text, FL_ADDRESS_SIZE - (int)sizeof "tcp://");
    if (length > prefix && memcmp(text, inproc, prefix) == 0) {
        snprintf(address, FL_ADDRESS_SIZE, "%.*s", (int)length, text);
        return FLEET_OK;
    }
    if (!colon || host == 0 || !is_host(text, host) ||
        !fl_read_digits(colon + 1, length - host - 1, 65535, &port) ||
        port == 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: \"%.*s\": expected ip:port, with a port from 1 to "
                       "65535 and IPv6 in brackets, or inproc://name",
                       source, (int)length, text);
    snprintf(address, FL_ADDRESS_SIZE, "tcp://%.*s:%d", (int)host, text,
             (int)port);
    return FLEET_OK;
}

int fl_find_endpoint(fl_address *list, int n, const char *address)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], address) == 0)
            return i;
    return -1;
}

fleet_status fl_read_endpoints(const char *source, const char *list,
                               const char *kind, int most, fl_address *to,
                               int *n)
{
    const char *at = list;

    for (*n = 0;; at++) {
        const char *comma = at + strcspn(at, ","), *end = comma;
        fl_address address;

        while (at < end && *at == ' ')
            at++;
        while (end > at && end[-1] == ' ')
            end--;
        FL_TRY(fl_read_endpoint(source, at, (size_t)(end - at), address));
        if (fl_find_endpoint(to, *n, address) >= 0)
            return fl_fail(FLEET_EINVAL,
                           "%s: \"%.*s\" stands twice in \"%.500s\"", source,
                           (int)(end - at), at, list);
        if (*n == most)
            return fl_fail(FLEET_EINVAL, "%s: more than %d %s", source, most,
                           kind);
        memcpy(to[(*n)++], address, sizeof address);
        at = comma;
        if (!*at)
            return FLEET_OK;
    }
}

fleet_status fl_read_own_endpoint(char endpoint[FL_ENDPOINT_SIZE],
                                  fl_address address)
{
    const char *ip = fl_variable("POD_IP"), *text = fl_variable("PADDLE_PORT");
    int port, length;

    FL_TRY(fl_variable_read("PADDLE_PORT", text, 1, 65535, &port));
    length = snprintf(
        endpoint, FL_ENDPOINT_SIZE,
        strchr(ip, ':') && *ip != '[' ? "[%.200s]:%d" : "%.200s:%d", ip, port);
    return fl_read_endpoint("POD_IP:PADDLE_PORT", endpoint, (size_t)length,
                            address);
}

fleet_status fl_find_own_endpoint(const char *variable, const char *said,
                                  fl_address *list, int n, int *place)
{
    char endpoint[FL_ENDPOINT_SIZE];
    fl_address address;

    FL_TRY(fl_read_own_endpoint(endpoint, address));
    *place = fl_find_endpoint(list, n, address);
    if (*place >= 0)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "POD_IP:PADDLE_PORT is \"%s\": expected one of %s, "
                   "\"%.500s\"",
                   endpoint, variable, said);
}
