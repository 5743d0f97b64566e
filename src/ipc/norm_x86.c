/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 16 pixels at a time, of as many groups of 16 bytes as there are channels: where channels lie apart, the bytes of one
 * channel are picked together first. The two divisions are those of the scalar definition, so that nothing has to be
 * shown about their bits; a multiply and add in their place was not faster.
 */
#include "norm_x86.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>

#define AVX2   __attribute__((target("avx2,f16c")))
#define INLINE inline __attribute__((always_inline)) /* where a constant argument shall make a loop disappear */

enum {
    PIXELS = 16,
    LANES = 8, /* floats of a vector */
    GROUPS_MAX = TSOCKET_CHANNELS_MAX,
};

/* What the elements of a group need. */
struct group {
    __m256 mean[2], std[2];   /* of the first 8 and of the last 8 */
    __m128i pick[GROUPS_MAX]; /* channels apart: which bytes of each 16 that were read belong to it, and where */
};

/* For a shuffle: byte i comes from byte i * channels + channel of all, if that is one of the 16 from `first` on. */
AVX2 static inline __m128i pick(uint32_t channels, uint32_t channel, uint32_t first)
{
    const __m128i i = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i at = _mm_set1_epi8((char)((int)channel - (int)first));

    for (uint32_t k = 0; k < channels; k++)
        at = _mm_add_epi8(at, i);
    return _mm_adds_epu8(at, _mm_set1_epi8(0x70)); /* 0 to 15 stay; all others get their highest bit: a zero */
}

AVX2 static void group_apart(const struct tsi_norm *norm, uint32_t channel, struct group *group_out)
{
    for (int h = 0; h < 2; h++) {
        group_out->mean[h] = _mm256_set1_ps(norm->mean[channel]);
        group_out->std[h] = _mm256_set1_ps(norm->std[channel]);
    }
    for (uint32_t k = 0; k < norm->channels; k++)
        group_out->pick[k] = pick(norm->channels, channel, k * PIXELS);
}

AVX2 static void group_together(const struct tsi_norm *norm, uint32_t number, struct group *group_out)
{
    for (uint32_t h = 0; h < 2; h++) {
        float mean[LANES], std[LANES];

        for (uint32_t i = 0; i < LANES; i++) {
            uint32_t channel = (number * PIXELS + h * LANES + i) % norm->channels;

            mean[i] = norm->mean[channel];
            std[i] = norm->std[channel];
        }
        group_out->mean[h] = _mm256_loadu_ps(mean);
        group_out->std[h] = _mm256_loadu_ps(std);
    }
}

AVX2 static inline __m256 normalise(__m128i bytes, __m256 mean, __m256 std)
{
    __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));

    return _mm256_div_ps(_mm256_sub_ps(_mm256_div_ps(value, _mm256_set1_ps(255.0f)), mean), std);
}

/* The upper half of each, rounded to nearest, ties to even. */
AVX2 static inline __m256i to_bfloat16(__m256 value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

    return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}

AVX2 static inline void store(enum tsocket_dtype dtype, __m256 low, __m256 high, void *to, ptrdiff_t at)
{
    uint16_t *half = (uint16_t *)to + at;

    if (dtype == TSOCKET_FLOAT32) {
        _mm256_storeu_ps((float *)to + at, low);
        _mm256_storeu_ps((float *)to + at + LANES, high);
    } else if (dtype == TSOCKET_FLOAT16) {
        _mm_storeu_si128((void *)half, _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
        _mm_storeu_si128((void *)(half + LANES), _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
    } else {
        __m256i packed = _mm256_packus_epi32(to_bfloat16(low), to_bfloat16(high)); /* within each half of a vector */
        _mm256_storeu_si256((void *)half, _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
    }
}

AVX2 static INLINE __m128i pick_out(const struct group *group, const __m128i *read, uint32_t channels)
{
    __m128i bytes = _mm_shuffle_epi8(read[0], group->pick[0]);

    for (uint32_t k = 1; k < channels; k++)
        bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(read[k], group->pick[k]));
    return bytes;
}

AVX2 static INLINE size_t write_groups(const struct tsi_norm *norm, uint32_t channels, const uint8_t *from,
                                       size_t pixels, void *to, bool apart, ptrdiff_t channel_step)
{
    struct group groups[GROUPS_MAX];
    size_t x;

    for (uint32_t g = 0; g < channels; g++)
        apart ? group_apart(norm, g, &groups[g]) : group_together(norm, g, &groups[g]);
    for (x = 0; x + PIXELS <= pixels; x += PIXELS) {
        __m128i read[GROUPS_MAX];

        for (uint32_t g = 0; g < channels; g++)
            read[g] = _mm_loadu_si128((const void *)(from + x * channels + g * PIXELS));
        for (uint32_t g = 0; g < channels; g++) {
            const struct group *group = &groups[g];
            __m128i bytes = apart ? pick_out(group, read, channels) : read[g];

            store(norm->dtype, normalise(bytes, group->mean[0], group->std[0]),
                  normalise(_mm_srli_si128(bytes, LANES), group->mean[1], group->std[1]), to,
                  apart ? (ptrdiff_t)g * channel_step + (ptrdiff_t)x : (ptrdiff_t)(x * channels + g * PIXELS));
        }
    }
    return x;
}

/* ---- dispatch ---- */

AVX2 static size_t write_pixels(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to, bool apart,
                                ptrdiff_t channel_step)
{
    if (norm->channels != 3)
        return write_groups(norm, norm->channels, from, pixels, to, apart, channel_step);
    return apart ? write_groups(norm, 3, from, pixels, to, true, channel_step)
                 : write_groups(norm, 3, from, pixels, to, false, channel_step);
}

static bool able; /* constant once ... */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ... this has run: a virtual machine takes 10 us to answer. */
static void find_out(void)
{
    unsigned a, b, c, d;

    able = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

size_t tsi_norm_x86(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to,
                    struct tsi_norm_steps steps)
{
    bool apart = steps.pixel == 1, together = steps.channel == 1 && steps.pixel == (ptrdiff_t)norm->channels;

    pthread_once(&once, find_out);
    return able && (apart || together) ? write_pixels(norm, from, pixels, to, apart, steps.channel) : 0;
}

#else

size_t tsi_norm_x86(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to,
                    struct tsi_norm_steps steps)
{
    (void)norm, (void)from, (void)pixels, (void)to, (void)steps;
    return 0;
}

#endif
