/* comm_call.c - calls as ranks compare and name them. */
#include "collective/comm_call.h"

#include <inttypes.h>
#include <stdio.h>

#include "collective/wire_type.h"

static const char *const names[] = {
#define NAME(name, text) text,
    FL_CALL_MAP(NAME)
#undef NAME
};

bool fl_call_matches(const fl_call *a, const fl_call *b)
{
    return a->kind == b->kind && a->how == b->how && a->type == b->type &&
           a->root == b->root && a->n == b->n;
}

void fl_call_text(const fl_call *c, char text[FL_CALL_TEXT])
{
    const char *name = names[c->kind];

    switch (c->kind) {
    case FL_CALL_ALL_REDUCE:
    case FL_CALL_REDUCE_SCATTER:
        snprintf(text, FL_CALL_TEXT, "%s(%s of %" PRId64 " %s)", name,
                 fl_reduce_name((fl_reduce)c->how), c->n,
                 fl_wire_name((fl_wire_type)c->type));
        break;
    case FL_CALL_BROADCAST:
        snprintf(text, FL_CALL_TEXT, "%s(%" PRId64 " bytes from rank %d)", name,
                 c->n, c->root);
        break;
    case FL_CALL_SEND:
    case FL_CALL_RECV:
        snprintf(text, FL_CALL_TEXT, "%s(%" PRId64 " bytes, rank %d)", name,
                 c->n, c->root);
        break;
    case FL_CALL_ALL_GATHER:
    case FL_CALL_MEMORY:
        snprintf(text, FL_CALL_TEXT, "%s(%" PRId64 " bytes)", name, c->n);
        break;
    default:
        snprintf(text, FL_CALL_TEXT, "%s", name);
    }
}

fleet_status fl_call_differs(int rank_a, const fl_call *a, int rank_b,
                             const fl_call *b)
{
    char text_a[FL_CALL_TEXT], text_b[FL_CALL_TEXT];

    fl_call_text(a, text_a);
    fl_call_text(b, text_b);
    return fl_fail(FLEET_EINVAL,
                   "calls do not match: rank %d calls %s, rank %d calls %s",
                   rank_a, text_a, rank_b, text_b);
}

fleet_status fl_call_sizes_differ(int from, int64_t sends, int to,
                                  int64_t expects)
{
    return fl_fail(FLEET_EINVAL,
                   "calls do not match: rank %d sends %" PRId64
                   " bytes to rank %d, which expects %" PRId64,
                   from, sends, to, expects);
}

fleet_status fl_call_timed_out(int missing, int64_t ms, int rank,
                               const fl_call *call)
{
    char text[FL_CALL_TEXT], who[24] = "some rank";

    if (missing >= 0)
        snprintf(who, sizeof who, "rank %d", missing);
    fl_call_text(call, text);
    return fl_fail(FLEET_ETIMEDOUT,
                   "%s did not come within %" PRId64 " ms: rank %d waits in %s",
                   who, ms, rank, text);
}
