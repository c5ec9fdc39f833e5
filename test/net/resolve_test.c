/* resolve_test.c - names of hosts in addresses that are bound. */
#include "net/socket.h"

#define SUITE resolve
#include "test.h"

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
