/* strategy_fields_test.c - the list of a strategy's fields: it has all of them,
 * each default is Fleet's, and each target is where passes read it. */
#define SUITE strategy_fields
#include "test.h"

#include <stddef.h>
#include <string.h>

#include "fleet/strategy/strategy_check.h"
#include "fleet/strategy/strategy_fields.h"

static size_t size_of(const fl_strategy_field *f)
{
    return f->type == FL_FIELD_INT64   ? sizeof(int64_t)
           : f->type == FL_FIELD_WORDS ? sizeof(char *)
           : f->type == FL_FIELD_FLOAT ? sizeof(float)
                                       : sizeof(int);
}

static const fl_strategy_field *field_named(const char *name)
{
    return fl_strategy_field_named(name, strlen(name));
}

/* A member without a line leaves a hole; alignment leaves holes of 4 bytes, in
 * front of members of 8. */
TEST(each_member_of_a_strategy_has_one_line)
{
    size_t end = 0;

    for (int i = 0; i < FL_N_FIELD; i++) {
        const fl_strategy_field *f = &fl_fields[i];
        size_t hole = f->offset - end;

        CHECK(f->offset >= end);
        CHECK(hole == 0 || (hole == 4 && f->offset % 8 == 0));
        end = f->offset + size_of(f);
    }
    CHECK(sizeof(fleet_distributed_strategy) - end <= 4);
}

TEST(a_strategy_starts_from_the_defaults_of_the_list)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    for (int i = 0; i < FL_N_FIELD; i++) {
        CHECK(!fl_strategy_field_is_asked(&s, &fl_fields[i]));
        CHECK_NEAR(fl_strategy_field_value(&s, &fl_fields[i]),
                   fl_fields[i].standard, 1e-6);
    }
    CHECK_INT(s.a_sync, 1);
    CHECK_INT(s.a_sync_configs.send_queue_size, 16);
    CHECK_INT(s.amp_configs.decr_ratio == 0.8f, 1);
    CHECK_INT(s.dgc_configs.sparsity == 0.999f, 1);
    CHECK_INT(s.fuse_grad_size_in_MB, 32);
    CHECK_OK(fl_strategy_check(&s, FL_LOCAL));
}

TEST(switches_that_a_line_names_exist)
{
    for (int i = 0; i < FL_N_FIELD; i++) {
        const fl_strategy_field *f = &fl_fields[i];
        const char *other = f->not_with;

        CHECK(!f->off_by || field_named(f->off_by));
        CHECK(!f->needs_switch || fl_strategy_field_switch(f));
        while (other && *other) {
            size_t n = strcspn(other, ",");

            CHECK(fl_strategy_field_named(other, n) != NULL);
            other += n + (other[n] == ',');
        }
    }
}

TEST(a_field_reaches_its_target_unless_a_switch_turns_it_off)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fl_training t = {0};

    s.dgc = 1;
    s.gradient_scale_sum = 1;
    s.fuse_grad_size_in_MB = 3;
    s.amp = s.amp_configs.use_bf16 = 1;
    s.amp_configs.custom_black_list = "fc";
    fl_strategy_set_training(&s, &t);
    CHECK(t.dgc.on && t.sum_over_ranks && t.dgc.sparsity == 0.999f);
    CHECK_INT(t.all_reduce.bucket, 3 << 18);
    CHECK_INT(t.all_reduce.last_bucket, 1 << 18);
    CHECK_INT(t.localsgd.steps, 0);
    CHECK_INT(t.amp.type, FLEET_BFLOAT16);
    CHECK(t.scaling.first == 0); /* of float16 alone */
    CHECK_TEXT(t.amp.wide_ops, "fc");

    t = (fl_training){0};
    s.fuse_all_reduce_ops = s.amp_configs.use_bf16 = 0;
    s.lamb = 1;
    fl_strategy_set_training(&s, &t);
    CHECK_INT(t.all_reduce.bucket, 0);
    CHECK_INT(t.amp.type, FLEET_FLOAT16);
    CHECK(t.scaling.first == 32768 && t.scaling.dynamic);
    CHECK_INT(t.scaling.grow_after, 1000);
    CHECK_INT(t.layerwise.rule, FL_LAMB);
    CHECK(t.layerwise.decay == 0.01f && t.layerwise.coeff == 0);
}
