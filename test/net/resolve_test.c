/* resolve_test.c - names of hosts in addresses that are bound, and in those
 * that are connected to. */
#define _GNU_SOURCE
#define SUITE resolve
#include "net_kit.h"
#include "test.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

TEST(a_name_becomes_its_number)
{
    fl_address numeric;

    CHECK_OK(fl_address_resolve("tcp://localhost:6170", numeric));
    CHECK_TEXT(numeric, "tcp://127.0.0.1:6170");
}

TEST(numbers_and_other_kinds_stay)
{
    static const char *const same[] = {"tcp://10.1.2.3:0", "tcp://*:80",
                                       "tcp://[::1]:80", "inproc://a:b",
                                       "ipc:///tmp/a"};
    fl_address numeric;

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        CHECK_OK(fl_address_resolve(same[i], numeric));
        CHECK_TEXT(numeric, same[i]);
    }
}

TEST(a_name_that_nobody_has_is_named)
{
    fl_address numeric;

    CHECK_FAILS(fl_address_resolve("tcp://no-such-host.invalid:1", numeric),
                FLEET_EIO, "no-such-host.invalid: no address of that host");
}

/* --- a name that stands for IPv6 alone ------------------------------------ */

/* In place of the C library's, for libzmq, too. */
__attribute__((visibility("default"))) int getaddrinfo(
    const char *node, const char *service, const struct addrinfo *hints,
    struct addrinfo **found)
{
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");

    memcpy(&real, &symbol, sizeof real);
    if (node && strcmp(node, "six.invalid") == 0) {
        if (hints && hints->ai_family == AF_INET)
            return EAI_NONAME;
        node = "::1";
    }
    return real(node, service, hints, found);
}

TEST(a_name_of_ipv6_alone_becomes_its_number)
{
    fl_address numeric;

    CHECK_OK(fl_address_resolve("tcp://six.invalid:6170", numeric));
    CHECK_TEXT(numeric, "tcp://[::1]:6170");
    CHECK(fl_address_is_ipv6("tcp://six.invalid:1"));
    CHECK(fl_address_is_ipv6("tcp://[::1]:1"));
    CHECK(!fl_address_is_ipv6("tcp://localhost:1"));
    CHECK(!fl_address_is_ipv6("tcp://10.1.2.3:1"));
    CHECK(!fl_address_is_ipv6("inproc://a"));
}

TEST(a_client_connects_to_a_name_of_ipv6_alone)
{
    char bound[FL_ADDRESS_SIZE], address[FL_ADDRESS_SIZE];
    fl_socket *server, *client;

    CHECK_OK(fl_socket_listen(&server));
    if (fl_socket_bind(server, "tcp://[::1]:0", -1, bound) != FLEET_OK)
        test_skip("this machine has no IPv6");
    net_open_pool();
    snprintf(address, sizeof address, "tcp://six.invalid%s",
             strrchr(bound, ':'));
    client = net_connect(address);
    net_talk(server, client, 1);
    net_end(client, server);
}
