/* strategy_amp.c - lists of names, and what float16 does not go with. */
#include "fleet/strategy/strategy_amp.h"

#include "base/error.h"
#include "base/text.h"
#include "fleet/job/handle.h"
#include "ops/ops.h"
#include "runtime/exec/executor.h"

/* --- lists of names ------------------------------------------------------- */

static bool is_op(const char *word, size_t n)
{
    char name[64];

    if (n >= sizeof name)
        return false;
    memcpy(name, word, n);
    name[n] = 0;
    return fl_op_find(name) != NULL;
}

/* A word of the white list, or of the black one, with the other list. */
static fleet_status check_word(const char *list, const char *word, size_t n,
                               const char *other)
{
    bool white = strcmp(list, "custom_white_list") == 0;

    if (!is_op(word, n))
        return fl_fail(FLEET_EINVAL,
                       "strategy.amp_configs.%s: there is no operator \"%.*s\" "
                       "(names have commas between them, and no blanks)",
                       list, (int)n, word);
    if (white && !fl_name_list_has("fc,matmul", word, n))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.amp_configs.%s: \"%.*s\" is of float32 alone; "
                       "fc and matmul take others",
                       list, (int)n, word);
    if (white && fl_name_list_has(other, word, n))
        return fl_fail(FLEET_EINVAL,
                       "strategy.amp_configs: \"%.*s\" is in custom_white_list "
                       "and in custom_black_list",
                       (int)n, word);
    return FLEET_OK;
}

static fleet_status check_list(const char *list, const char *words,
                               const char *other)
{
    while (words && *words) {
        size_t n = strcspn(words, ",");

        FL_TRY(check_word(list, words, n, other));
        words += n + (words[n] == ',');
    }
    return FLEET_OK;
}

/* --- types and scale ------------------------------------------------------ */

/* Ranks have one scale while each knows of all gradients. */
static fleet_status check_float16(const fleet_distributed_strategy *s,
                                  fl_job_mode mode)
{
    const char *alone = s->localsgd            ? "localsgd"
                        : s->adaptive_localsgd ? "adaptive_localsgd"
                        : s->dgc               ? "dgc"
                                               : NULL;

    if (fl_mode_has_ranks(mode) && alone)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.amp: float16 with strategy.%s is not in this "
                       "version: no rank sees all gradients of an update; "
                       "strategy.amp_configs.use_bf16 = 1 asks for bfloat16",
                       alone);
    return FLEET_OK;
}

fleet_status fl_amp_check(const fleet_distributed_strategy *s, fl_job_mode mode)
{
    const char *white = s->amp_configs.custom_white_list;
    const char *black = s->amp_configs.custom_black_list;

    if (fl_amp_dtype(s) == FLEET_FLOAT16)
        FL_TRY(check_float16(s, mode));
    FL_TRY(check_list("custom_white_list", white, black));
    return check_list("custom_black_list", black, NULL);
}

fleet_dtype fl_amp_dtype(const fleet_distributed_strategy *s)
{
    if (!s->amp)
        return 0;
    return s->amp_configs.use_bf16 ? FLEET_BFLOAT16 : FLEET_FLOAT16;
}

fleet_status fleet_get_loss_scaling(fleet *f, float *scale)
{
    fl_store *s;
    fleet_status status;

    FL_TRY(fl_handle_check(f, "fleet_get_loss_scaling"));
    if (!scale)
        return fl_fail(FLEET_EINVAL, "fleet_get_loss_scaling: no scale");
    if (!f->trained || fl_amp_dtype(&f->strategy) != FLEET_FLOAT16)
        return fl_fail(FLEET_ESTATE,
                       "fleet_get_loss_scaling: nothing is trained in float16 "
                       "(strategy.amp without use_bf16)");
    s = f->store;
    FL_TRY(fl_store_synchronize(s));
    pthread_rwlock_rdlock(&s->lock);
    status = fl_store_to_host(s);
    if (status == FLEET_OK)
        *scale = s->scaling.scale;
    pthread_rwlock_unlock(&s->lock);
    return status;
}
