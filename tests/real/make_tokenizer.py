"""A small byte-level BPE tokenizer and a tiny Llama's config, for servers that need a model folder but no sense.

    python make_tokenizer.py OUT TEXTFILE        (needs tokenizers; any few hundred kilobytes of text will do)

OUT then serves with `--load-format dummy` (random weights) in SGLang and vLLM, and feeds make_eagle.py.
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

out, text = pathlib.Path(sys.argv[1]), sys.argv[2]
out.mkdir(parents=True, exist_ok=True)
tok = Tokenizer(models.BPE())
tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tok.decoder = decoders.ByteLevel()
tok.train(
    [text],
    trainers.BpeTrainer(
        vocab_size=8000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>", "<unk>"]
    ),
)
tok.save(str(out / "tokenizer.json"))
(out / "tokenizer_config.json").write_text(
    json.dumps(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "</s>",
            "model_max_length": 32768,
            "chat_template": "{% for m in messages %}{{m['role']}}: {{m['content']}}\n{% endfor %}assistant:",
        }
    )
)
(out / "config.json").write_text(
    json.dumps(
        {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": 8000,
            "hidden_size": 256,
            "head_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "intermediate_size": 512,
            "max_position_embeddings": 32768,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": "float32",
        }
    )
)
