// Writes a video without a loss: video_main FILE WIDTH HEIGHT FPS CODEC KEY_EVERY < FRAMES, frames
// of 3 * WIDTH * HEIGHT bytes.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "tests/data/video_samples.h"

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  equipoise::VideoSample sample;
  sample.width = std::stoi(argv[2]);
  sample.height = std::stoi(argv[3]);
  sample.fps = std::stoi(argv[4]);
  sample.codec = argv[5];
  sample.key_every = std::stoi(argv[6]);
  const std::string bytes{std::istreambuf_iterator<char>(std::cin), {}};
  const size_t size = 3 * static_cast<size_t>(sample.width * sample.height);
  std::vector<std::vector<uint8_t>> frames;
  for (size_t at = 0; at + size <= bytes.size(); at += size)
    frames.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                        bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
  equipoise::WriteVideo(argv[1], sample, frames);
}
