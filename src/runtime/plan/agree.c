/* agree.c - ranks agree what they do next: an all_gather of intents, of which
 * the highest one is done. */
#include "runtime/plan/agree.h"

#include "base/error.h"
#include "base/memory.h"

/* What a rank sends to all ranks. */
typedef struct rank_intent {
    int32_t intent, batches;
} rank_intent;

static void find_highest(const rank_intent *all, int n, fl_agreed *agreed)
{
    *agreed = (fl_agreed){0};
    for (int i = 0; i < n; i++) {
        if ((fl_intent)all[i].intent > agreed->done) {
            agreed->done = (fl_intent)all[i].intent;
            agreed->first = i;
        }
        agreed->batches += all[i].batches;
        agreed->ranks += all[i].batches > 0;
        if (all[i].batches > agreed->most)
            agreed->most = all[i].batches;
    }
}

static fleet_status gather_intents(fl_comm *p, rank_intent mine,
                                   fl_agreed *agreed)
{
    enum { FEW = 64 };
    rank_intent few[FEW], *all = few;
    fleet_status status;

    if (p->size > FEW)
        FL_TRY(FL_NEW(&all, (size_t)p->size * sizeof *all));
    status = p->methods->all_gather(p, &mine, all, sizeof mine, NULL);
    if (status == FLEET_OK)
        find_highest(all, p->size, agreed);
    if (all != few)
        fl_free(all);
    return status;
}

/* Of several commands the first rank's is done; the other ranks' come later. */
static bool is_mine(fl_intent intent, const fl_agreed *agreed, int rank)
{
    if (agreed->done == FL_INTENT_UPDATE && intent == FL_INTENT_NONE)
        return true;
    return agreed->done == intent &&
           (intent != FL_INTENT_COMMAND || agreed->first == rank);
}

fleet_status fl_agree_on(const fl_agree *r, fl_intent intent, int batches,
                         fl_agreed *agreed)
{
    for (;;) {
        FL_TRY(gather_intents(r->comm, (rank_intent){(int32_t)intent, batches},
                              agreed));
        if (is_mine(intent, agreed, r->comm->rank))
            return FLEET_OK;
        FL_TRY(r->serve(r->arg, agreed));
    }
}

void fl_agree_abort(const fl_agree *r, const char *why)
{
    fl_comm_abort(r->comm, why);
    if (r->hierarchy)
        fl_comm_abort(r->hierarchy, why);
}
