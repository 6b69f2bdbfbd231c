"""Which cases of sections 1 to 6 (and C088) there are, and what of them no command of this version can show.

Each case is a function test_C… of test_cases.py or test_cases_files.py; test_every_case_is_tested_or_named holds that list to this one.
"""
SCALES = ("C001", "C002", "C004", "C005", "C007", "C008", "C010", "C011", "C013", "C014", "C016", "C017", "C019")
FUSED = ("C020", "C022", "C023", "C025", "C026")
DIALECTS = ("C028", "C029", "C031", "C032", "C034", "C035", "C037", "C038", "C040", "C041", "C043", "C044")
CONFIG = ("C046", "C047", "C049", "C050", "C052", "C053", "C055", "C056", "C058")
EXPERTS = ("C059", "C061", "C062", "C064", "C065", "C067")
FILES = ("C068", "C070", "C071", "C073", "C074", "C076", "C077")
ALL = SCALES + FUSED + DIALECTS + CONFIG + EXPERTS + FILES + ("C088",)

# Nothing of these can be shown yet.
PENDING = {
    "C029": "convert (a source that is in the target's dialect already is refused)",
    "C031": "convert to GGUF, and expert models",
    "C040": "running gpt-oss: whether gate and up are split by rows 0, 2, … shows in its output only",
}

# A part of these is tested here; the rest needs what stands here.
IN_PART = {
    "C002": "repair (peer-max, with its record)",
    "C007": "repair (an option of its own, and the 16 unknown weights in its report)",
    "C028": "convert (the bits of the new tensor and of the way back); the bits it starts from and the reciprocal are shown",
    "C032": "an option that reads the other nibble order",
    "C059": "a quantized KV cache: that the scales reach the attention",
    "C064": "running draft layers: that gate is fused with up",
    "C065": "a next request to the same process",
    "C067": "quantize of fused 3-D experts",
    "C088": "the whole table of tensors in doctor's JSON, whose form is not fixed yet",
}
