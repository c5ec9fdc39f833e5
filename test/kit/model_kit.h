/* model_kit.h - a small click model with its data, for tests of the whole. */
#pragma once

#include <stdbool.h>

#include <fleet/fleet.h>

typedef struct scene {
    fleet *f;
    fleet_program *p;
    fleet_model m;
    fleet_dataset *data;
    fleet_executor *e, *tester;
} scene;

enum { SCENE_LINES = 600 };

/* A MultiSlot file in the test's folder: label (1 float), 3 numbers, two slots
 * of one id, one of any number. `seed` makes other lines. */
const char *scene_file(const char *name, int lines, int seed);

/* The same for a scene that pools: behind these, where w has no id in some
 * lines and an id a weight, in most, numbers that may be none, and ids with
 * weights again. */
const char *scene_pooled_file(const char *name, int lines, int seed);

/* How it is trained. All-zero fields are defaults. */
typedef struct scene_training {
    const char *optimizer;        /* "sgd", ...; NULL: "adam" */
    const char *embedding, *wide; /* own rules of tables "embedding" and
                                     "embedding_wide"; NULL: none */
    const char *group;         /* own rule of the tower's weights; NULL: none */
    fleet_row_storage storage; /* of both */
    fleet_table_options life;  /* likewise */
    bool a_sync;
    bool bounds_staleness; /* in async, by max_staleness */
    int max_staleness;
    int merged;          /* in half-async, batches of a push; 0: 1, async */
    int64_t geo;         /* in async: updates between exchanges; 0: not geo */
    int64_t cache_bytes; /* of rows that a worker keeps; 0: none */
    int cache_staleness; /* in async, in batches */
    int merge;           /* batches per update; 0: 1 */
    bool sums;           /* of merged batches' gradients, not their mean */
    fleet_wire_type push_type, pull_type;
    bool forgets; /* without error feedback */
    bool packs_keys;
    fleet_durability log;
    fleet_log_configs log_configs; /* numbers that are 0 are the default */
    int replicas;                  /* copies of each lane; 0: 1 */
    float l2_decay, l1_decay, clip, value_clip, norm_clip;
    bool decay;         /* the learning rate falls every 3 updates */
    bool bf16;          /* by strategy.amp: see kit_need_bf16() */
    const char *layers; /* strategy "lars", with momentum, or "lamb" */
    bool normalized;    /* with a second loss, behind a batch_norm "norm" */
    int64_t units;      /* of the first hidden layer; 0: 16 */
    bool pooled;        /* of scene_pooled_file(): w by its maximum, "prices",
                           and "x", a sum over the root of its ids' number */
} scene_training;

/* wide&deep on such a file, with Adam, or the optimizer's name. */
void scene_open(scene *s, const fleet_options *options, const char *optimizer);
void scene_open_as(scene *s, const fleet_options *options,
                   const scene_training *how);
void scene_data(scene *s, const char *file, int64_t batch, int threads,
                int64_t shuffle);
void scene_data_of(scene *s, const char *const *files, int n, int64_t batch,
                   int threads, int64_t shuffle);
/* The same of an in-memory dataset, loaded. */
void scene_data_in_memory(scene *s, const char *file, int64_t batch,
                          int threads);
/* With options of its own, which say nothing of slots; in memory if so. */
void scene_data_as(scene *s, const char *file, fleet_dataset_options o,
                   bool in_memory);
/* The same through a command. */
void scene_data_piped(scene *s, const char *file, int64_t batch,
                      const char *command);
void scene_train(scene *s, int epochs);

/* A scene that has trained for an epoch; one that is saved, too: where. */
void scene_trained(scene *s, const char *optimizer, uint64_t seed);
const char *scene_saved(scene *s, const char *optimizer);

/* The program, read from its text, has that text again. */
void scene_is_read_as_written(scene *s);

uint64_t scene_hash(scene *s);
void scene_close(scene *s);
