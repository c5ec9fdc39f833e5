/* test_nccl.c - ranks on GPUs: the kit of groups on the emulated device and the
 * emulated NCCL (with FLEET_TEST_DEVICE: on real ones), and how NCCL fails. */
#define SUITE nccl
#include "nccl_kit.h"
#include "test.h"

static const peers_way apart = {"processes", false, &nccl_place},
                       apart_ordered = {"processes", true, &nccl_place},
                       threads = {"threads", false, &nccl_place},
                       threads_ordered = {"threads", true, &nccl_place};

static void all_sizes(const char *part, peers_way way, int least)
{
    for (int size = least; size <= 4; size++)
        peers_run(peers_part_named(part), way, size);
}

#define HEALTHY(part)                                                          \
    TEST_LIMIT(ranks_do_##part, 120)                                           \
    {                                                                          \
        all_sizes(#part, apart, 1);                                            \
    }                                                                          \
    TEST_LIMIT(ranks_in_threads_do_##part, 120)                                \
    {                                                                          \
        all_sizes(#part, threads, 1);                                          \
    }
HEALTHY(reductions)
HEALTHY(large)
HEALTHY(moves)
HEALTHY(messages)
HEALTHY(works)
HEALTHY(forgotten)
HEALTHY(memory)
HEALTHY(split)
HEALTHY(refusals)

TEST_LIMIT(ranks_keep_an_order, 120)
{
    all_sizes("reductions", apart_ordered, 1);
}

TEST_LIMIT(ranks_in_threads_keep_an_order, 120)
{
    all_sizes("reductions", threads_ordered, 1);
}

#define FAILING(part)                                                          \
    TEST_LIMIT(ranks_see_##part, 60)                                           \
    {                                                                          \
        all_sizes(#part, apart, 2);                                            \
    }
FAILING(sizes_differ)
FAILING(large_and_small)
FAILING(types_differ)
FAILING(calls_differ)
FAILING(order_differs)
FAILING(roots_differ)
FAILING(messages_differ)
FAILING(pairs_differ)
FAILING(one_gives_up)
FAILING(one_gives_up_later)
FAILING(one_stays_away)
FAILING(no_message_comes)
FAILING(one_is_killed)
