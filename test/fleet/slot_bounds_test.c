/* slot_bounds_test.c - what a program does not take in a slot is refused where
 * it is read. Ids are in pooled_data_test.c. */
#define SUITE slot_bounds
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

/* With a shuffle a row of the batch would tell nobody where it comes from. */
TEST(a_label_that_the_loss_refuses_is_named_by_file_line_and_slot)
{
    const char *text = "1 0 3 1 2 3 1 4 1 5 0\n"
                       "1 7 3 1 2 3 1 4 1 5 0\n"
                       "1 1 3 1 2 3 1 4 1 5 0\n";
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, test_file("bad.txt", text), 3, 1, 100);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL),
                FLEET_EFORMAT,
                "bad.txt:2: slot \"label\": expected a label from 0 to 1, got "
                "\"7\"");
    scene_close(&s);
}

/* A program may have a loss that nobody runs. */
TEST(labels_of_a_loss_that_is_not_trained_may_be_anything)
{
    fleet_var *x, *rating, *label, *loss;
    const char *file = test_file("rated.txt", "1 0.5 1 7 1 1\n");
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_executor *e;
    fleet_dataset *d;

    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    rating = fleet_data(p, "rating", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    label = fleet_data(p, "label", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    x = fleet_fc(p, x, 1, NULL);
    CHECK(fleet_sigmoid_cross_entropy(p, x, rating) != NULL);
    loss = fleet_mean(p, fleet_sigmoid_cross_entropy(p, x, label));
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), loss));
    d = fleet_queue_dataset(
        f, &(fleet_dataset_options){
               .use_var =
                   (fleet_var *[]){fleet_program_var(p, "x"), rating, label},
               .n_use_var = 3});
    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    e = fleet_executor_create(p, NULL);
    CHECK_OK(fleet_train_from_dataset(e, d, NULL, NULL));
    fleet_executor_destroy(e);
    fleet_destroy(f);
}
