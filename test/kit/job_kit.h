/* job_kit.h - real data trained by fleet-train under fleetrun, and what came of
 * it. */
#pragma once

/* Configurations with the inside of "strategy". Adult: wide&deep, 5 epochs of
 * batches of 64; criteo_attr: the same, 2 epochs of batches of 256;
 * Fashion-MNIST: an MLP, 6 epochs of batches of 64. Skip the test where the
 * data is not there. */
const char *job_adult(const char *strategy);
const char *job_criteo(const char *strategy);
const char *job_fashion(const char *strategy);
const char *job_fashion_of(const char *strategy, int epochs);

/* The same of Adult, with the inside of the model's "ps": who keeps what. */
const char *job_adult_kept(const char *strategy, const char *ps);

/* What a process of the job runs. */
const char *job_script(const char *config);

/* The closing line of the job; flags are fleetrun's. */
const char *job_train(const char *flags, const char *config);

/* Its "params_hash":"...", for CHECK_CONTAINS() in other lines. */
const char *job_hash(const char *line);

/* The configuration with another key, a text. */
const char *job_with(const char *config, const char *key, const char *text);

/* The same of Adult with another number of epochs; with so many that it does
 * not end by itself. */
const char *job_epochs(const char *config, int epochs);
const char *job_endless(const char *config);

/* The configuration with another learning rate. */
const char *job_at_rate(const char *config, const char *rate);

/* The configuration with another seed. */
const char *job_seeded(const char *config, int seed);

/* A process of a job of 2 ranks, beside servers or not, is killed once it
 * trains: the job ends, and who is left names the victim. */
void job_kill_rank(const char *flags, const char *config);
void job_kill_server(const char *flags, const char *config);

/* A number of it, unless a fraction of the data had to do. */
void job_at_least(const char *line, const char *key, double want);

/* The same of the median of jobs with the seeds 0, 1, ... up to FLEET_SEEDS of
 * them, by default one. */
void job_median_at_least(const char *flags, const char *config, const char *key,
                         double want);

/* More than it, also with a tenth of the data. */
void job_above(const char *line, const char *key, double want);

/* Processes that are started from here on have so many emulated GPUs. */
void job_use_gpus(int n);
const char *job_on_gpus(const char *config);

/* The file, or its first lines when a fraction has to do. */
const char *job_lines_of(const char *file, const char *name, int lines);
