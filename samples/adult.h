/* adult.h - the Adult census data as samples use it: which columns make which
 * slots, and what is done to their cells. */
#pragma once

#include <stdio.h>

#include <fleet/fleet.h>

enum { ADULT_DENSE = 6, ADULT_IDS = 8 };

static const fleet_id_slot adult_ids[ADULT_IDS] = {
    {.name = "workclass"},
    {.name = "education"},
    {.name = "marital_status"},
    {.name = "occupation"},
    {.name = "relationship"},
    {.name = "race"},
    {.name = "sex"},
    {.name = "native_country"},
};

static const fleet_slot adult_slots[2 + ADULT_IDS] = {
    {.name = "income",
     .dtype = FLEET_INT64,
     .columns = (const char *[]){"14"},
     .n_column = 1,
     .transforms = (const fleet_transform[]){FLEET_EQUALS},
     .n_transform = 1,
     .equals = (const char *[]){">50K", ">50K."},
     .n_equals = 2},
    {.name = "dense", /* age, fnlwgt, education-num, gain, loss, hours */
     .dim = ADULT_DENSE,
     .columns = (const char *[]){"0", "2", "4", "10", "11", "12"},
     .n_column = ADULT_DENSE,
     .transforms =
         (const fleet_transform[]){FLEET_STANDARDIZE, FLEET_LOG1P_STANDARDIZE,
                                   FLEET_STANDARDIZE, FLEET_LOG1P_STANDARDIZE,
                                   FLEET_LOG1P_STANDARDIZE, FLEET_STANDARDIZE},
     .n_transform = ADULT_DENSE},
#define ID(title, column)                                                      \
    {                                                                          \
        .name = title, .dtype = FLEET_INT64,                                   \
        .columns = (const char *[]){column}, .n_column = 1                     \
    }
    ID("workclass", "1"),
    ID("education", "3"),
    ID("marital_status", "5"),
    ID("occupation", "6"),
    ID("relationship", "7"),
    ID("race", "8"),
    ID("sex", "9"),
    ID("native_country", "13"),
#undef ID
};

static inline fleet_dataset_options adult_options(int64_t shuffle)
{
    return (fleet_dataset_options){.format = FLEET_CSV,
                                   .batch_size = 128,
                                   .slots = adult_slots,
                                   .n_slot = 2 + ADULT_IDS,
                                   .missing = "?",
                                   .comment = '|',
                                   .shuffle = shuffle};
}

/* One file of the folder, its samples shuffled in a buffer of that many. */
static inline fleet_status adult_open_file(fleet *f, const char *folder,
                                           const char *file, int64_t shuffle,
                                           fleet_dataset **data)
{
    fleet_dataset_options options = adult_options(shuffle);
    char path[4096];

    *data = fleet_queue_dataset(f, &options);
    if (!*data)
        return FLEET_EINVAL;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return fleet_dataset_set_filelist(*data, (const char *[]){path}, 1);
}

/* The training data; the test data, whose numbers are standardized alike. */
static inline fleet_status adult_open(fleet *f, const char *folder,
                                      fleet_dataset **train,
                                      fleet_dataset **test)
{
    fleet_status s = adult_open_file(f, folder, "adult.data.gz", 40000, train);

    if (s == FLEET_OK)
        s = adult_open_file(f, folder, "adult.test.first13025.gz", 0, test);
    return s == FLEET_OK ? fleet_dataset_use_statistics_of(*test, *train) : s;
}

/* What a predictor needs: all slots but the label in, the probability out. */
static inline fleet_status adult_save(fleet *f, fleet_program *p,
                                      fleet_var *prediction, const char *path)
{
    fleet_var *feed[1 + ADULT_IDS];

    feed[0] = fleet_program_var(p, "dense");
    for (int i = 0; i < ADULT_IDS; i++)
        feed[1 + i] = fleet_program_var(p, adult_ids[i].name);
    return fleet_save_inference_model(f, path, feed, 1 + ADULT_IDS, &prediction,
                                      1);
}
