/* agree.c - ranks agree what they do next: an all_gather of intents, of which
 * the highest one is done. */
#include "runtime/plan/agree.h"

#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "runtime/optim/update_settings.h"
#include "runtime/plan/job_signature.h"

/* What a rank sends to all ranks. */
typedef struct rank_intent {
    int16_t intent, wants_stop;
    int32_t batches;
    uint64_t settings; /* of its optimizer: a hash */
} rank_intent;

static void find_highest(const rank_intent *all, int n, fl_agreed *agreed)
{
    *agreed = (fl_agreed){0};
    for (int i = 0; i < n; i++) {
        if ((fl_intent)all[i].intent > agreed->done) {
            agreed->done = (fl_intent)all[i].intent;
            agreed->first = i;
        }
        agreed->stops = agreed->stops || all[i].wants_stop;
        agreed->batches += all[i].batches;
        agreed->ranks += all[i].batches > 0;
        if (all[i].batches > agreed->most)
            agreed->most = all[i].batches;
    }
}

/* Rank 0 and that rank say how their optimizers are set; all ranks fail with
 * it. */
static fleet_status tell_difference(const fl_agree *r, int rank)
{
    char *first = NULL, *other = NULL, *difference = NULL, name[32];
    fl_text mine = {0};
    fleet_status status;

    if (r->store && r->store->optimizer)
        fl_job_signature_add_optimizer(&mine, r->store->optimizer);
    FL_GOTO(done, mine.status);
    FL_GOTO(done,
            fl_comm_broadcast_text(r->comm, fl_text_chars(&mine), 0, &first));
    FL_GOTO(done, fl_comm_broadcast_text(r->comm, fl_text_chars(&mine), rank,
                                         &other));
    snprintf(name, sizeof name, "rank %d", rank);
    difference = fl_job_signature_difference("rank 0", first, name, other);
    status = fl_fail(FLEET_EINVAL,
                     "ranks do not train alike: %s: all of them must set their "
                     "optimizer to the same",
                     difference ? difference : "optimizer");
done:
    fl_free(difference);
    fl_free(first);
    fl_free(other);
    fl_text_done(&mine);
    return status;
}

static fleet_status compare_settings(const fl_agree *r, const rank_intent *all)
{
    for (int i = 1; i < r->comm->size; i++)
        if (all[i].settings != all[0].settings)
            return tell_difference(r, i);
    return FLEET_OK;
}

static fleet_status gather_intents(const fl_agree *r, rank_intent mine,
                                   fl_agreed *agreed)
{
    enum { FEW = 64 };
    rank_intent few[FEW], *all = few;
    fl_comm *p = r->comm;
    fleet_status status;

    if (p->size > FEW)
        FL_TRY(FL_NEW(&all, (size_t)p->size * sizeof *all));
    status = p->methods->all_gather(p, &mine, all, sizeof mine, NULL);
    if (status == FLEET_OK)
        find_highest(all, p->size, agreed);
    if (status == FLEET_OK && agreed->done == FL_INTENT_UPDATE)
        status = compare_settings(r, all);
    if (all != few)
        fl_free(all);
    return status;
}

static uint64_t hash_settings(const fl_agree *r)
{
    return r->store && r->store->optimizer
               ? fl_optimizer_settings_hash(r->store->optimizer)
               : 0;
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
    const rank_intent mine = {(int16_t)intent, r->wants_stop, batches,
                              hash_settings(r)};

    for (;;) {
        FL_TRY(gather_intents(r, mine, agreed));
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
