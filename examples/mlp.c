/* SPDX-License-Identifier: Apache-2.0 */
#include "mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "mlp_weights.h"

static struct mlp_parameters parameters_in(float *all, size_t inputs, size_t classes)
{
    struct mlp_parameters p = {.all = all, .hidden = all};
    p.hidden_bias = p.hidden + inputs * MLP_HIDDEN;
    p.output = p.hidden_bias + MLP_HIDDEN;
    p.output_bias = p.output + MLP_HIDDEN * classes;
    return p;
}

bool mlp_init(struct mlp *m, size_t inputs, size_t classes, size_t batch, uint64_t seed)
{
    size_t n_parameters = (inputs + 1) * MLP_HIDDEN + (MLP_HIDDEN + 1) * classes;
    float *parameters = calloc(3 * n_parameters, sizeof(float));
    *m = (struct mlp){
        .inputs = inputs,
        .classes = classes,
        .n_parameters = n_parameters,
        .value.all = parameters,
        .x = calloc(batch * (inputs + 2 * MLP_HIDDEN + classes), sizeof(float)),
        .label = calloc(batch, sizeof(size_t)),
    };
    if (!parameters || !m->x || !m->label)
        return false;
    m->value = parameters_in(parameters, inputs, classes);
    m->gradient = parameters_in(parameters + n_parameters, inputs, classes);
    m->velocity = parameters_in(parameters + 2 * n_parameters, inputs, classes);
    m->hidden = m->x + batch * inputs;
    m->delta = m->hidden + batch * MLP_HIDDEN;
    m->output = m->delta + batch * MLP_HIDDEN;
    mlp_fill_random(m->value.hidden, inputs, MLP_HIDDEN, &seed);
    mlp_fill_random(m->value.output, MLP_HIDDEN, classes, &seed);
    openblas_set_num_threads(1); /* the other cores belong to the decode threads and the other trainers */
    return true;
}

void mlp_fini(struct mlp *m)
{
    free(m->value.all);
    free(m->x);
    free(m->label);
}

/* out = a b, of rows x inner and inner x columns, either of them transposed in memory. */
static void multiply(const float *a, bool a_transposed, const float *b, bool b_transposed, size_t rows, size_t inner,
                     size_t columns, float *out)
{
    cblas_sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans, b_transposed ? CblasTrans : CblasNoTrans,
                (int)rows, (int)columns, (int)inner, 1, a, (int)(a_transposed ? rows : inner), b,
                (int)(b_transposed ? inner : columns), 0, out, (int)columns);
}

static void add_bias(float *rows, size_t n, size_t columns, const float *bias)
{
    for (size_t i = 0; i < n * columns; i++)
        rows[i] += bias[i % columns];
}

static void sum_rows(const float *rows, size_t n, size_t columns, float *out)
{
    memset(out, 0, columns * sizeof(*out));
    for (size_t i = 0; i < n * columns; i++)
        out[i % columns] += rows[i];
}

/* m->x to m->output, the scores of the classes. */
static void forward(struct mlp *m, size_t n)
{
    multiply(m->x, false, m->value.hidden, false, n, m->inputs, MLP_HIDDEN, m->hidden);
    add_bias(m->hidden, n, MLP_HIDDEN, m->value.hidden_bias);
    for (size_t i = 0; i < n * MLP_HIDDEN; i++)
        m->hidden[i] = fmaxf(m->hidden[i], 0);
    multiply(m->hidden, false, m->value.output, false, n, MLP_HIDDEN, m->classes, m->output);
    add_bias(m->output, n, m->classes, m->value.output_bias);
}

/* Scores of one sample become the derivative of its loss by them: softmax minus 1 at the label. */
static void score_sample(float *score, size_t classes, size_t label, struct mlp_tally *tally)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++)
        if (score[c] > score[best])
            best = c;
    float top = score[best], sum = 0;
    for (size_t c = 0; c < classes; c++) {
        score[c] = expf(score[c] - top);
        sum += score[c];
    }
    for (size_t c = 0; c < classes; c++)
        score[c] /= sum;
    tally->samples++;
    tally->correct += best == label;
    tally->loss -= logf(fmaxf(score[label], 1e-30f));
    score[label] -= 1;
}

void mlp_evaluate(struct mlp *m, size_t n, struct mlp_tally *tally)
{
    forward(m, n);
    for (size_t i = 0; i < n; i++)
        score_sample(m->output + i * m->classes, m->classes, m->label[i], tally);
}

/* m->output, the derivative by the scores, to m->gradient. */
static void backward(struct mlp *m, size_t n)
{
    multiply(m->hidden, true, m->output, false, MLP_HIDDEN, n, m->classes, m->gradient.output);
    sum_rows(m->output, n, m->classes, m->gradient.output_bias);
    multiply(m->output, false, m->value.output, true, n, m->classes, MLP_HIDDEN, m->delta);
    for (size_t i = 0; i < n * MLP_HIDDEN; i++)
        if (m->hidden[i] <= 0)
            m->delta[i] = 0;
    multiply(m->x, true, m->delta, false, m->inputs, n, MLP_HIDDEN, m->gradient.hidden);
    sum_rows(m->delta, n, MLP_HIDDEN, m->gradient.hidden_bias);
}

static void descend(struct mlp *m, size_t n, float lr)
{
    float *value = m->value.all, *velocity = m->velocity.all;
    const float *gradient = m->gradient.all;
    for (size_t i = 0; i < m->n_parameters; i++) {
        velocity[i] = MLP_MOMENTUM * velocity[i] + gradient[i] / (float)n;
        value[i] -= lr * velocity[i];
    }
}

void mlp_train(struct mlp *m, size_t n, float lr, struct mlp_tally *tally)
{
    mlp_evaluate(m, n, tally);
    backward(m, n);
    descend(m, n, lr);
}
