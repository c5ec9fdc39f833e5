/* refusals.c - the last lines, by the stranger that each is of. */
#include "net/refusals.h"

#include <string.h>

enum { QUIET_MS = 1000 };

static bool is_same(const fl_peer *a, const fl_peer *b)
{
    return a->size == b->size && memcmp(a->id, b->id, a->size) == 0;
}

/* Its line, else one that is old enough; -1: it has had one, or all are new. */
static int line_for(const fl_refusals *r, const fl_peer *peer, int64_t now_ms)
{
    int free = -1;

    for (int i = 0; i < FL_REFUSAL_LINES; i++) {
        bool old =
            !r->line[i].said_ms || now_ms - r->line[i].said_ms >= QUIET_MS;

        if (r->line[i].said_ms && is_same(&r->line[i].peer, peer))
            return old ? i : -1;
        if (old)
            free = i;
    }
    return free;
}

bool fl_refusals_tell(fl_refusals *r, const fl_peer *peer, int64_t now_ms,
                      uint64_t *unsaid)
{
    int i = line_for(r, peer, now_ms);

    *unsaid = r->unsaid;
    if (i < 0) {
        r->unsaid++;
        return false;
    }
    r->unsaid = 0;
    r->line[i].peer = *peer;
    r->line[i].said_ms = now_ms ? now_ms : 1;
    return true;
}
