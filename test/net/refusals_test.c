/* refusals_test.c - a stranger who is refused again and again fills no log. */
#define SUITE refusals
#include "test.h"

#include "net/refusals.h"

static fl_peer peer_of(uint8_t name)
{
    return (fl_peer){.size = 1, .id = {name}};
}

static bool tell(fl_refusals *r, uint8_t name, int64_t now_ms, uint64_t want)
{
    fl_peer peer = peer_of(name);
    uint64_t unsaid = 0;
    bool tells = fl_refusals_tell(r, &peer, now_ms, &unsaid);

    if (tells)
        CHECK_INT(unsaid, want);
    return tells;
}

TEST(a_stranger_has_one_line_in_a_second)
{
    fl_refusals r = {0};

    CHECK(tell(&r, 1, 5000, 0));
    for (int i = 0; i < 100; i++)
        CHECK(!tell(&r, 1, 5000 + i, 0));
    CHECK(tell(&r, 2, 5100, 100));
    CHECK(!tell(&r, 1, 5999, 0));
    CHECK(tell(&r, 1, 6000, 1));
}

TEST(strangers_by_many_connections_have_few_lines)
{
    fl_refusals r = {0};
    int n = 0;

    for (int i = 0; i < 200; i++)
        n += tell(&r, (uint8_t)i, 7000 + i, 0);
    CHECK_INT(n, FL_REFUSAL_LINES);
    CHECK(tell(&r, 250, 8000, 200 - FL_REFUSAL_LINES));
}
