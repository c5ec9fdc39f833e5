/* builder_names_test.c - names that builders give, and parameters and tables
 * that are shared by name. */
#define SUITE builder_names
#include "test.h"
#include "train_kit.h"

#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/graph/program.h"

typedef struct scene {
    fleet *f;
    fleet_program *p;
} scene;

static scene open_scene(void)
{
    scene s = {.f = kit_handle(&(kit_options){0})};

    s.p = fleet_program_create(s.f);
    return s;
}

TEST(layers_without_a_name_are_numbered)
{
    scene s = open_scene();
    fleet_var *x = kit_data(s.p, "x", 4);

    for (int i = 0; i < 3; i++)
        CHECK(fleet_fc(s.p, x, 2, NULL) != NULL);
    CHECK(fleet_program_var(s.p, "fc_0.w") && fleet_program_var(s.p, "fc_2.b"));
    CHECK(fleet_program_var(s.p, "fc_3.w") == NULL);
    CHECK(fleet_program_var(s.p, NULL) == NULL);
    CHECK(fleet_program_var(NULL, "fc_0.w") == NULL);
    fleet_destroy(s.f);
}

TEST(a_parameter_of_the_same_name_and_shape_is_shared)
{
    fleet_fc_options o = {.name = "f", .weight.name = "w", .no_bias = 1};
    scene s = open_scene();
    fleet_var *x = kit_data(s.p, "x", 4);

    CHECK(fleet_fc(s.p, x, 4, &o) != NULL);
    o.name = "g";
    CHECK(fleet_fc(s.p, x, 4, &o) != NULL);
    CHECK_INT(s.p->n_var, 4); /* x, w and two results */
    CHECK(fleet_fc(s.p, x, 5, &o) == NULL);
    CHECK_FAILS(fleet_program_status(s.p), FLEET_EEXIST,
                "\"w\" is there already with shape [4,4]: it cannot be shared "
                "as [4,5]");
    fleet_destroy(s.f);
}

TEST(a_name_of_two_things_is_refused_with_both)
{
    scene s = open_scene();
    fleet_var *user = kit_data_ids(s.p, "user", 1);

    CHECK(fleet_sparse_embedding(
              s.p, user, 3,
              &(fleet_sparse_embedding_options){.table = "user"}) == NULL);
    CHECK_FAILS(fleet_program_status(s.p), FLEET_EEXIST,
                "\"user\" is the name of two things, a data variable and a "
                "table: variables, parameters and tables of a program share "
                "one set of names");
    fleet_destroy(s.f);
}

TEST(a_table_of_the_same_name_and_shape_is_shared)
{
    scene s = open_scene();
    fleet_var *a = kit_data_ids(s.p, "a", 1), *b = kit_data_ids(s.p, "b", 1);

    CHECK(fleet_sparse_embedding(s.p, a, 3, NULL) != NULL);
    CHECK(fleet_sparse_embedding(s.p, b, 3, NULL) != NULL);
    CHECK(fleet_sparse_embedding(s.p, b, 4, NULL) == NULL);
    CHECK_FAILS(fleet_program_status(s.p), FLEET_EEXIST,
                "\"embedding\" is there already with shape [0,3]");
    fleet_destroy(s.f);
}

/* What is asked of a shared parameter beside its shape is not dropped. */
TEST(who_shares_a_parameter_states_what_it_has_or_nothing)
{
    static const fleet_param_attr other[] = {
        {.name = "w", .initializer = {FLEET_INIT_CONSTANT, 2, 0}},
        {.name = "w", .learning_rate = 3},
        {.name = "w", .l2_decay = 0.5f},
        {.name = "w", .no_decay = 1},
        {.name = "w", .frozen = 1},
    };
    static const char *const words[] = {"initializer", "learning_rate",
                                        "l2_decay", "no_decay", "frozen"};
    const fleet_param_attr first = {.name = "w",
                                    .initializer = {FLEET_INIT_CONSTANT, 1, 0},
                                    .learning_rate = 2,
                                    .l2_decay = 0.25f};
    const fleet_param_attr nothing = {.name = "w"};

    for (int i = 0; i < 5; i++) {
        scene s = open_scene();
        fleet_var *w = fleet_parameter(s.p, (int64_t[]){3}, 1, &first);

        CHECK(fleet_parameter(s.p, (int64_t[]){3}, 1, &first) == w);
        CHECK(fleet_parameter(s.p, (int64_t[]){3}, 1, &nothing) == w);
        CHECK(fleet_parameter(s.p, (int64_t[]){3}, 1, &other[i]) == NULL);
        CHECK_STATUS(fleet_program_status(s.p), FLEET_EEXIST);
        CHECK_CONTAINS(fleet_last_error(), words[i]);
        fleet_destroy(s.f);
    }
}

/* 0 is the learning rate 1, and some initializers have no numbers. */
TEST(who_shares_a_parameter_may_state_its_defaults)
{
    const fleet_param_attr first = {
        .name = "w", .initializer = {FLEET_INIT_XAVIER_UNIFORM, 0, 0}};
    const fleet_param_attr again = {
        .name = "w",
        .initializer = {FLEET_INIT_XAVIER_UNIFORM, 3, 4},
        .learning_rate = 1};
    scene s = open_scene();
    fleet_var *w = fleet_parameter(s.p, (int64_t[]){3}, 1, &first);

    CHECK(w && fleet_parameter(s.p, (int64_t[]){3}, 1, &again) == w);
    fleet_destroy(s.f);
}

TEST(who_shares_a_table_states_what_it_has_or_nothing)
{
    fleet_sparse_embedding_options o = {.learning_rate = 2};
    scene s = open_scene();
    fleet_var *a = kit_data_ids(s.p, "a", 1);

    CHECK(fleet_sparse_embedding(s.p, a, 3, &o) != NULL);
    CHECK(fleet_sparse_embedding(s.p, a, 3, &o) != NULL);
    CHECK(fleet_sparse_embedding(s.p, a, 3, NULL) != NULL);
    o.learning_rate = 1.5f;
    CHECK(fleet_sparse_embedding(s.p, a, 3, &o) == NULL);
    CHECK_FAILS(fleet_program_status(s.p), FLEET_EEXIST,
                "\"embedding\" is there already with another learning_rate");
    fleet_destroy(s.f);
}

/* Two names that differ only at their end, beyond what a buffer might hold. */
TEST(long_names_are_never_taken_for_each_other)
{
    char a[400], b[400];
    scene s = open_scene();

    memset(a, 'n', sizeof a);
    a[399] = b[399] = 0;
    memcpy(b, a, sizeof b);
    b[398] = 'm';
    fleet_var *first =
        fleet_parameter(s.p, (int64_t[]){2}, 1, &(fleet_param_attr){.name = a});
    fleet_var *second =
        fleet_parameter(s.p, (int64_t[]){2}, 1, &(fleet_param_attr){.name = b});
    CHECK((first && first != second) ||
          fleet_program_status(s.p) == FLEET_EINVAL);
    fleet_destroy(s.f);
}
