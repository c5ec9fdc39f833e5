/* recipes_test.c - the programs of docs/recipes.md do what the page says. */
#define SUITE recipes
#include "model_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* --- a loss of one's own -------------------------------------------------- */

/* What is too low costs three times as much as what is too high. */
static fleet_var *lopsided_loss(fleet_program *p, fleet_var *guess,
                                fleet_var *price)
{
    fleet_var *low = fleet_relu(p, fleet_sub(p, price, guess));
    fleet_var *high = fleet_relu(p, fleet_sub(p, guess, price));

    return fleet_mean(p, fleet_add(p, fleet_scale(p, low, 3, 0), high));
}

/* Of prices 1 to 100 the number that costs least is their upper quartile. */
TEST(a_loss_is_made_of_operators)
{
    fleet *f = NULL;
    float price[100], zero[100] = {0}, guess = 0;
    const int64_t dims[] = {100, 1};
    fleet_feed feed[] = {{"nothing", FLEET_FLOAT32, zero, dims, 2, NULL},
                         {"price", FLEET_FLOAT32, price, dims, 2, NULL}};

    CHECK_OK(fleet_init(&f, NULL));
    fleet_program *p = fleet_program_create(f);
    fleet_var *nothing =
        fleet_data(p, "nothing", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    fleet_var *label =
        fleet_data(p, "price", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    fleet_var *loss = lopsided_loss(
        p, fleet_fc(p, nothing, 1, &(fleet_fc_options){.name = "guess"}),
        label);

    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.5f), loss));
    fleet_executor *e = fleet_executor_create(p, NULL);
    for (int i = 0; i < 100; i++)
        price[i] = (float)i + 1;
    for (int step = 0; step < 300; step++)
        CHECK_OK(fleet_executor_run(e, feed, 2, NULL, 0));
    CHECK_OK(fleet_parameter_get(f, "guess.b", &guess, 1));
    CHECK(guess > 73.5f && guess < 77.5f);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- an end when it gets no better ---------------------------------------- */

/* Passes until two in a row were no better on `judge`; the best one's weights
 * are in `best`. */
static fleet_status train_until_no_better(scene *s, fleet_dataset *judge,
                                          const char *best, int *passes)
{
    double least = 1e30;
    fleet_status status = FLEET_OK;

    for (int worse = 0; status == FLEET_OK && worse < 2; ++*passes) {
        fleet_evaluation now;

        status = fleet_train_from_dataset(s->e, s->data, NULL, NULL);
        if (status == FLEET_OK)
            status = fleet_evaluate(s->tester, judge, &s->m, &now);
        worse = status == FLEET_OK && now.loss < least ? 0 : worse + 1;
        if (status == FLEET_OK && worse == 0) {
            least = now.loss;
            status = fleet_save_persistables(s->f, best);
        }
    }
    return status;
}

static double loss_on(scene *s, fleet_dataset *judge)
{
    fleet_evaluation now;

    CHECK_OK(fleet_evaluate(s->tester, judge, &s->m, &now));
    return now.loss;
}

TEST(a_program_stops_when_validations_get_no_better)
{
    scene s;
    int passes = 0;
    double last;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("judge.txt", 200, 2), 50, 1, 0);
    fleet_dataset *judge = s.data;
    scene_data(&s, scene_file("train.txt", 100, 1), 10, 1, 100);
    s.e = fleet_executor_create(s.p, NULL);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(train_until_no_better(&s, judge, test_path("best"), &passes));
    CHECK(passes >= 3);
    last = loss_on(&s, judge);
    CHECK_OK(fleet_load_model(s.f, test_path("best")));
    CHECK(loss_on(&s, judge) < last);
    fleet_dataset_destroy(judge);
    scene_close(&s);
}
