/* ps_live_test.c - a server whose memory loses a bit while it trains ends
 * before the next update is written down, and says where; its workers are
 * told. */
#define _GNU_SOURCE
#define SUITE ps_live
#include "ps_kit.h"
#include "test.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fleet/job/handle.h"
#include "ps/aggregate/lane_record.h"
#include "ps/journal/journal_reader.h"
#include "ps/host/server_internal.h"

static void open_node(ps_node *n, const fleet_options *o)
{
    scene_open_as(&n->s, o, &n->job->how);
    n->s.f->strategy.live_hash = 1;
    scene_data(&n->s, n->job->file[0], PS_BATCH, 1, 0);
}

/* It says where its first weight is. */
static fleet_status serve_and_tell(ps_node *n)
{
    fleet_status status = fleet_init_server(n->s.f, NULL);

    if (status != FLEET_OK)
        return status;
    fprintf(stderr, "a weight is at %" PRIxPTR "\n",
            (uintptr_t)n->s.f->server->runner[0].store->flats->weight);
    return fleet_run_server(n->s.f);
}

/* From outside, at any moment, one bit after the other, until the server has
 * noticed: what it has just computed with, and written over, was not lost. */
static void lose_bits(ps_node *server)
{
    const char *said = ps_said(server);
    uintptr_t at;

    CHECK_INT(sscanf(strstr(said, "a weight is at "),
                     "a weight is at %" SCNxPTR, &at),
              1);
    for (int bit = 0; !ps_ends_within(server, 1); bit = (bit + 1) % 23) {
        uint32_t weight;
        struct iovec mine = {&weight, sizeof weight};
        struct iovec theirs = {(void *)at, sizeof weight};

        if (process_vm_readv(server->pid, &mine, 1, &theirs, 1, 0) < 0) {
            if (errno == EPERM || errno == ENOSYS)
                test_skip("the memory of other processes is not to be had");
            continue; /* it has ended */
        }
        weight ^= 1u << bit;
        (void)process_vm_writev(server->pid, &mine, 1, &theirs, 1, 0);
    }
}

static uint64_t updates_in(const char *folder)
{
    fl_journal_reader *from;
    fl_journal_record r;
    uint64_t updates = 0;
    bool more = true;

    CHECK_OK(fl_journal_reader_open(&from, folder));
    while (more) {
        CHECK_OK(fl_journal_next(from, &r, &more));
        updates += more && r.kind == FL_LANE_RECORD_UPDATE;
    }
    fl_journal_reader_close(from);
    return updates;
}

TEST(a_bit_that_is_lost_is_named_before_the_next_record)
{
    static const char words[] = "they or their states are not those that the "
                                "last update has left";
    ps_job j = {.workers = 2,
                .passes = 100000,
                .open = open_node,
                .serve = serve_and_tell,
                .how = {.log = FLEET_DURABLE_PROCESS,
                        .log_configs = {.folder = test_path("log")}},
                .file = {scene_file("a.txt", 300, 1)}};
    unsigned long long after;
    const char *at;

    ps_start_all(&j);
    while (!strstr(ps_said(ps_server(&j, 0)), "a weight is at ") ||
           access(test_path("log/server-0/lane-0/journal-00000001"), R_OK) != 0)
        CHECK(!ps_ends_within(ps_server(&j, 0), 1));
    lose_bits(ps_server(&j, 0));
    ps_check_fails(ps_server(&j, 0), words);
    for (int i = 0; i < 2; i++)
        ps_check_fails(ps_worker(&j, i), words);
    at = strstr(ps_said(ps_server(&j, 0)), "server 0, lane 0: after ");
    CHECK(at != NULL);
    CHECK_INT(sscanf(at, "server 0, lane 0: after %llu updates: ", &after), 1);
    CHECK(updates_in(test_path("log/server-0/lane-0")) == after);
}
